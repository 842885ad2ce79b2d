// Package sandbox runs programs that nobody trusts, such as code that a model wrote: in namespaces of their own without
// a network, with all files read-only but a small folder in memory, without devices but null, zero, full and random,
// without Unix sockets to the host's services, without privileges, and within bounds of memory, time, files and
// processes. A filter refuses calls of the kernel that nothing but an attack needs.
//
// It needs Linux 5.12 on amd64 or arm64 (of other machines there is no filter, and so no sandbox) and a kernel
// that lets the user make namespaces; where that is not so, [Check] says why. It keeps mistakes in. It hides no
// file that the user may read but those below /tmp and /run, and it is no wall against whoever attacks the kernel:
// for that there are virtual machines.
//
// A sandbox begins as this program once more, which is recognised by its first word, sets the bounds, and becomes the
// program that was asked for: importing the package is enough.
package sandbox
