"""What is run on a GPU machine by gpu_run.sh, with that machine's torch: nothing for pytest."""
collect_ignore = ["test_backends.py", "test_device_feed.py", "test_gpu_failures.py", "test_graphs.py", "test_python_cuda.py", "test_two_gpus.py"]
