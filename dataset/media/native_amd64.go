package media

import "golang.org/x/sys/cpu"

//go:generate sh -c "cd asm && go run . -out ../asm_amd64.s -stubs ../asm_amd64.go -pkg media"

// native tells whether the assembly runs here; tests switch it off.
var native = cpu.X86.HasAVX2 && cpu.X86.HasBMI2
