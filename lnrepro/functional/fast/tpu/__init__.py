"""A scan as one Pallas kernel for TPUs."""
