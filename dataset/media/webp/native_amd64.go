package webp

import "golang.org/x/sys/cpu"

//go:generate sh -c "cd ../asm && go run . -of webp -out ../webp/asm_amd64.s -stubs ../webp/asm_amd64.go -pkg webp"

// native tells whether the assembly runs here; tests switch it off.
var native = cpu.X86.HasAVX2 && cpu.X86.HasBMI1 && cpu.X86.HasBMI2
