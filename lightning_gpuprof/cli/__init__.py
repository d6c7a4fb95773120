"""The ``gpuprof`` command."""
