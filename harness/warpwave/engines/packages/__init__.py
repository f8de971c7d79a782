"""Install what a package needs beside torch and Triton: in a virtual environment on this machine, or in a layer of an image."""
