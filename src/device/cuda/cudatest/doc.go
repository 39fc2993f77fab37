// Package cudatest gives tests with the build tag cuda a GPU, or the emulator in csrc/emulate. On
// machines without a GPU, build.sh puts the emulator's driver where the loader finds it.
package cudatest
