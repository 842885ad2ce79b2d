// Package xpu runs operations on an accelerator by a plug-in: a shared library with the C table of
// plugin/lfx.h, loaded without cgo in builds with the tag xpu or cuda. plugin/tutorial.c is a plug-in of
// one operation, plugin/reference.c one that trains a dense model.
package xpu
