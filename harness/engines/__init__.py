"""Where a job runs. `seam` is what an engine has to be, `registry` lists the engines that there are."""
