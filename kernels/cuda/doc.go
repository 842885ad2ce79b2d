// Package cuda runs operations on NVIDIA GPUs, in programs built with the tag cuda: the driver is loaded
// when a device is opened, without cgo, and the kernels are the project's own (source/). Without the tag
// the package is empty, and such a program knows nothing of it.
package cuda
