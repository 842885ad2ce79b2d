package emulate

// cpuid executes CPUID.
func cpuid(leaf, sub uint32) (a, b, c, d uint32)

// xgetbv executes XGETBV: an extended control register, whose low half is a.
func xgetbv(index uint32) (a, d uint32)
