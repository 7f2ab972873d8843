"""Gradients through functions that were written for another library."""
