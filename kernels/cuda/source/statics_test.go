package source

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"sort"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

// kernelsFile tells the emulated driver what shared memory and registers the kernels of the image have.
const kernelsFile = "../emulate/src/kernels.inc"

// TestKernels: what the emulated driver is told of kernels is what the image's code has of them.
func TestKernels(t *testing.T) {
	image, err := os.ReadFile("kernels.fatbin")
	require.NoError(t, err)
	text := kernelsOf(t, image)
	if *rewrite {
		require.NoError(t, os.WriteFile(kernelsFile, []byte(text), 0o644))
	}
	have, err := os.ReadFile(kernelsFile)
	require.NoError(t, err)
	require.Equal(t, text, string(have), "go test ./kernels/cuda/source -run TestKernels -args -rewrite")
}

// What the image's code says of itself: bytes of a block that are the system's, from sm_90 on, and in .nv.info the form of a record
// whose length stands in it, and the attribute of a function's registers.
const (
	reserved  = 1024
	sized     = 4
	registers = 0x2f
)

// kernelsOf lists the kernels of an image: the most shared memory and registers that any device's code has of each.
func kernelsOf(t *testing.T, image []byte) string {
	le := binary.LittleEndian
	type size struct{ shared, registers uint64 }
	all := map[string]size{}
	put := func(name string, s size) {
		all[name] = size{max(all[name].shared, s.shared), max(all[name].registers, s.registers)}
	}
	require.Equal(t, uint32(0xba55ed50), le.Uint32(image))
	d, err := zstd.NewReader(nil)
	require.NoError(t, err)
	defer d.Close()
	for at := int(le.Uint16(image[6:])); at < len(image); {
		kind, header, n := le.Uint16(image[at:]), int(le.Uint32(image[at+4:])), int(le.Uint64(image[at+8:]))
		packed, system := int(le.Uint32(image[at+16:])), uint64(0)
		if le.Uint32(image[at+28:]) >= 90 {
			system = reserved
		}
		body := image[at+header : at+header+packed]
		at += header + n
		if kind != 2 { // PTX
			continue
		}
		code, err := d.DecodeAll(body, nil)
		require.NoError(t, err)
		f, err := elf.NewFile(bytes.NewReader(code))
		require.NoError(t, err)
		symbols, err := f.Symbols()
		require.NoError(t, err)
		for _, s := range f.Sections {
			if name, ok := strings.CutPrefix(s.Name, ".nv.shared."); ok && !strings.HasPrefix(name, "reserved.") {
				put(name, size{shared: s.Size - system})
			}
		}
		info, err := f.Section(".nv.info").Data()
		require.NoError(t, err)
		for len(info) >= 4 {
			n := 4
			if info[0] == sized {
				n += int(le.Uint16(info[2:]))
			}
			if info[0] == sized && info[1] == registers {
				put(symbols[le.Uint32(info[4:])-1].Name, size{registers: uint64(le.Uint32(info[8:]))})
			}
			info = info[n:]
		}
	}
	require.NotEmpty(t, all)
	var names []string
	for name := range all {
		names = append(names, name)
	}
	sort.Strings(names)
	var b strings.Builder
	for _, name := range names {
		fmt.Fprintf(&b, "{\"%s\", %d, %d},\n", name, all[name].shared, all[name].registers)
	}
	return b.String()
}
