/* nanobind's own sources, through a file of the project: setuptools takes no source with an absolute path. */
#include "nb_combined.cpp"
