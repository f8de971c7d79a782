"""Run jobs through Slurm: one sbatch job for each leg, from a login node or, over ssh, from anywhere. Start reading at `engine`."""
