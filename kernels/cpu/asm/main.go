// Command asm writes the assembly of kernels/cpu: the same primitives for AVX-512 (names end in Z) and AVX2
// (in Y), and the products of bfloat16 on AMX tiles. Run "go generate" in kernels/cpu.
package main

import (
	"flag"
	"log"
	"os"

	. "github.com/mmcloughlin/avo/build"
)

// main writes the assembly of all kernels, once for AVX-512 and once for AVX2, and with -amx that
// of the tile instructions.
func main() {
	amx := flag.String("amx", "", "file for the AMX assembly")
	part := flag.String("part", "", "what to write in place of all: precision")
	flag.Parse()
	ConstraintExpr("amd64")
	if *part == "precision" {
		for _, e := range []*emitter{{wide: true, suffix: "Z"}, {suffix: "Y"}} {
			e.precision()
		}
		Generate()
		return
	}
	for _, e := range []*emitter{{wide: true, suffix: "Z"}, {suffix: "Y"}} {
		e.tiles()
		e.transpose()
		e.rowTimes()
		e.copyRows()
		e.spread()
		e.vectors()
		e.picks()
		e.exponentials()
		e.softmaxes()
		e.activations()
		e.rotations()
		e.conversions()
		e.nibbles()
		e.convs()
		e.winograd()
		e.optimizers()
		if e.wide {
			e.halfPrimitives()
			e.rowTimesHalf()
		}
	}
	vnni()
	peak()
	system()
	Generate()
	if out := flag.Lookup("out").Value.String(); out != "" {
		if err := encodeFile(out); err != nil {
			log.Fatal(err)
		}
	}
	if *amx != "" {
		if err := os.WriteFile(*amx, amxSource(), 0o644); err != nil {
			log.Fatal(err)
		}
	}
}
