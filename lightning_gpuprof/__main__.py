"""``python -m lightning_gpuprof``: the same as the ``gpuprof`` command."""

from lightning_gpuprof.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
