// Package emulate builds, for tests, a library that takes the place of the CUDA driver and carries out the kernels
// on the processor: src/driver.cc is the driver, src/fibers.cc runs the threads of a block, and the kernels are
// compiled from kernels/cuda/source as nvcc compiles them. It needs g++. What only a device shows, it does not:
// races between blocks, inline assembler, rounding of the device's functions, speed.
package emulate
