"""The sequential part of a scan as one CUDA kernel."""
