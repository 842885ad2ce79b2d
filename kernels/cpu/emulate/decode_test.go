package emulate

import (
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every encoding is decoded as objdump prints it, whatever follows it, or refused.
func TestDecode(t *testing.T) {
	golden, err := os.ReadFile("testdata/encodings.txt")
	require.NoError(t, err)
	seen := map[opcode]bool{}
	for line := range strings.Lines(string(golden)) {
		if line[0] == '#' {
			continue
		}
		code, want, _ := strings.Cut(strings.TrimSpace(line), "\t")
		b, err := hex.DecodeString(strings.ReplaceAll(code, " ", ""))
		require.NoError(t, err, line)
		in, ok := decode(b)
		if strings.HasPrefix(want, "refused") {
			require.False(t, ok, line)
			continue
		}
		require.True(t, ok, line)
		require.EqualValues(t, len(b), in.size, line)
		require.Equal(t, plainer(want), inWords(in), line)
		after, _ := decode(append(b, 0xC4, 0xE2))
		require.Equal(t, in, after, line)
		_, ok = decode(b[:len(b)-1])
		require.False(t, ok, "%s without its last byte", line)
		seen[in.op] = true
	}
	require.Len(t, seen, len(opcodeNames), "an instruction without a case")
}

// plainer removes from objdump's words what changes no result: the hint, displacements of 0 and the name
// of no register.
func plainer(s string) string {
	return strings.NewReplacer("loaddt1", "loadd", " 0x0(", " (", ",0x0(", ",(", ",%riz,1", "").Replace(s)
}

var registerNames = [...]string{"%rax", "%rcx", "%rdx", "%rbx", "%rsp", "%rbp", "%rsi", "%rdi", "%r8", "%r9",
	"%r10", "%r11", "%r12", "%r13", "%r14",
	"%r15", "%rip", ""}

// inWords prints an instruction as objdump does.
func inWords(in instruction) string {
	var m string
	if in.disp < 0 {
		m = fmt.Sprintf("-0x%x", -in.disp)
	} else if in.disp > 0 {
		m = fmt.Sprintf("0x%x", in.disp)
	}
	switch {
	case in.index != noRegister:
		m += fmt.Sprintf("(%s,%s,%d)", registerNames[in.base], registerNames[in.index], 1<<in.scale)
	case in.base != noRegister:
		m += "(" + registerNames[in.base] + ")"
	}
	name := strings.ToLower(in.op.String())
	switch in.op {
	case ldTileCfg, stTileCfg:
		return name + " " + m
	case tileZero:
		return fmt.Sprintf("%s %%tmm%d", name, in.tile)
	case tileLoadD:
		return fmt.Sprintf("%s %s,%%tmm%d", name, m, in.tile)
	case tileStoreD:
		return fmt.Sprintf("%s %%tmm%d,%s", name, in.tile, m)
	case tdpBF16PS:
		return fmt.Sprintf("%s %%tmm%d,%%tmm%d,%%tmm%d", name, in.right, in.left, in.tile)
	}
	return name
}
