"""The engine that runs jobs in containers: Docker Engine, or a program with the same API, such as Podman."""
