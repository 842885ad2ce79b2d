// Package torch reads and writes what PyTorch saves: files of torch.save (.bin, .pt), directories of
// torch.distributed.checkpoint, and Megatron's torch_dist, without Python and without running a pickle.
//
// A pickle is a program. Here its values are built and its calls are noted: a call of anything that makes a tensor, a
// dictionary or a type is read as what it stands for, and any other is named and refused, never run. Sizes are held to
// the bytes that are there before anything is allocated; a fault is a [checkpoint.Error] with file, tensor and offset.
package torch
