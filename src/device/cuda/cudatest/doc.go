// Package cudatest is what tests with the build tag cuda run on: a GPU, or the
// stand-in for one in csrc/emulate, whose driver build.sh puts where the loader
// finds it on machines without a GPU.
package cudatest
