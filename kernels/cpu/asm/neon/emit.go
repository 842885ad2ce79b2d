// Command neon writes the kernels for arm64 in Go's assembly: go run ./neon -out ../asm_arm64.s -stubs
// ../asm_arm64.go. Instructions that Go's assembler has no name for are words, with their name beside them;
// encodings are those of the Arm Architecture Reference Manual (DDI 0487), section C7.2.
package main

import (
	"fmt"
	"math"
	"strings"
)

// vec is a vector register of four float32s.
type vec int

// emitter writes one file.
type emitter struct {
	asm, stubs strings.Builder
	labels     int
	next       vec // of registers that are handed out upwards
	top        vec // of those for constants, handed out downwards
}

// op is a vector instruction of three registers, or two.
type op struct {
	name string
	code uint32
}

var (
	fadd   = op{"FADD", 0x4E20D400}
	fsub   = op{"FSUB", 0x4EA0D400}
	fmul   = op{"FMUL", 0x6E20DC00}
	fdiv   = op{"FDIV", 0x6E20FC00}
	fmla   = op{"FMLA", 0x4E20CC00} // d += n·m, rounded once
	fmls   = op{"FMLS", 0x4EA0CC00} // d -= n·m, rounded once
	fmax   = op{"FMAX", 0x4E20F400} // a NaN is greater than all, and less
	fmin   = op{"FMIN", 0x4EA0F400}
	fmaxnm = op{"FMAXNM", 0x4E20C400} // a NaN is ignored
	faddp  = op{"FADDP", 0x6E20D400}
	fmaxp  = op{"FMAXNMP", 0x6E20C400}
	fcmeq  = op{"FCMEQ", 0x4E20E400}
	fcmgt  = op{"FCMGT", 0x6EA0E400}
	iadd   = op{"ADD", 0x4EA08400}
	isub   = op{"SUB", 0x6EA08400}
	and    = op{"AND", 0x4E201C00}
	orr    = op{"ORR", 0x4EA01C00}
	bsl    = op{"BSL", 0x6E601C00} // d = d ? n : m, bit by bit
	trn1   = op{"TRN1", 0x4E802800}
	trn2   = op{"TRN2", 0x4E806800}
	trn1d  = op{"TRN1.2D", 0x4EC02800}
	trn2d  = op{"TRN2.2D", 0x4EC06800}

	fabs   = op{"FABS", 0x4EA0F800}
	fsqrt  = op{"FSQRT", 0x6EA1F800}
	frintn = op{"FRINTN", 0x4E218800}
	fcvtns = op{"FCVTNS", 0x4E21A800}
)

// is emits d = n op m.
func (e *emitter) is(o op, d, n, m vec) {
	e.word(o.code|uint32(m)<<16|uint32(n)<<5|uint32(d), "%s V%d, V%d, V%d", o.name, d, n, m)
}

// of emits d = op n.
func (e *emitter) of(o op, d, n vec) {
	e.word(o.code|uint32(n)<<5|uint32(d), "%s V%d, V%d", o.name, d, n)
}

// copy emits d = n.
func (e *emitter) copy(d, n vec) { e.is(orr, d, n, n) }

// clear emits d = 0.
func (e *emitter) clear(d vec) { e.line("VEOR V%d.B16, V%d.B16, V%d.B16", d, d, d) }

// lane emits d += n·m[i], or d = n·m[i].
func (e *emitter) lane(o op, d, n, m vec, i int) {
	code := uint32(0x4F801000) // FMLA by element
	if o.name == "FMUL" {
		code = 0x4F809000
	}
	e.word(code|uint32(i&1)<<21|uint32(i>>1)<<11|uint32(m)<<16|uint32(n)<<5|uint32(d), "%s V%d, V%d, V%d[%d]", o.name, d, n, m, i)
}

// shl, sshr and ushr shift integers.
func (e *emitter) shl(d, n vec, by int) {
	e.word(0x4F005400|uint32(32+by)<<16|uint32(n)<<5|uint32(d), "SHL V%d, V%d, #%d", d, n, by)
}

func (e *emitter) sshr(d, n vec, by int) {
	e.word(0x4F000400|uint32(64-by)<<16|uint32(n)<<5|uint32(d), "SSHR V%d, V%d, #%d", d, n, by)
}

func (e *emitter) ushr(d, n vec, by int) {
	e.word(0x6F000400|uint32(64-by)<<16|uint32(n)<<5|uint32(d), "USHR V%d, V%d, #%d", d, n, by)
}

// dup fills d with lane i of n.
func (e *emitter) dup(d, n vec, i int) {
	e.word(0x4E000400|uint32(i<<3|4)<<16|uint32(n)<<5|uint32(d), "DUP V%d, V%d[%d]", d, n, i)
}

func (e *emitter) word(code uint32, format string, args ...any) {
	e.line("WORD $0x%08x // %s", code, fmt.Sprintf(format, args...))
}

func (e *emitter) line(format string, args ...any) {
	fmt.Fprintf(&e.asm, "\t"+format+"\n", args...)
}

func (e *emitter) label() string {
	e.labels++
	return fmt.Sprintf("l%d", e.labels)
}

func (e *emitter) at(label string) { fmt.Fprintf(&e.asm, "%s:\n", label) }

// reg hands out a register, fixed one that nothing else gets until the function ends.
func (e *emitter) reg() vec {
	if e.next > e.top {
		panic("neon: out of registers")
	}
	e.next++
	return e.next - 1
}

func (e *emitter) fixed() vec {
	e.top--
	return e.top + 1
}

// constant is a register full of a number.
func (e *emitter) constant(x float32) vec { return e.bits(math.Float32bits(x), fmt.Sprint(x)) }

func (e *emitter) bits(u uint32, what string) vec {
	v := e.fixed()
	e.line("MOVD $0x%x, R9 // %s", u, what)
	e.line("VDUP R9, V%d.S4", v)
	return v
}

// arg is a parameter.
type arg struct {
	name, kind string
	at         int
}

// function is what is being written.
type function struct {
	args map[string]arg
	ret  int
}

// begin starts a function. Parameters are "y []float32, n int, s float32"; result is "" or "float32".
func (e *emitter) begin(name, params, result, doc string) function {
	f, at := function{args: map[string]arg{}}, 0
	var fields []arg
	for _, p := range strings.Split(params, ", ") {
		n, kind, _ := strings.Cut(p, " ")
		fields = append(fields, arg{name: n, kind: kind})
	}
	for i := len(fields) - 2; i >= 0; i-- { // a, b int
		if fields[i].kind == "" {
			fields[i].kind = fields[i+1].kind
		}
	}
	for _, a := range fields {
		size, align := 8, 8
		switch {
		case strings.HasPrefix(a.kind, "[]"):
			size = 24
		case a.kind == "float32":
			size, align = 4, 4
		}
		at = (at + align - 1) / align * align
		a.at = at
		f.args[a.name], at = a, at+size
	}
	f.ret = (at + 7) / 8 * 8
	size := at
	if result != "" {
		size = f.ret + 4
		result = " " + result
	}
	fmt.Fprintf(&e.stubs, "\n// %s %s\n//\n//go:noescape\nfunc %s(%s)%s\n", name, doc, name, params, result)
	fmt.Fprintf(&e.asm, "\n// func %s(%s)%s\nTEXT ·%s(SB), NOSPLIT, $0-%d\n", name, params, result, name, size)
	e.next, e.top = 0, 31
	return f
}

// pointer loads where a slice begins, or an integer, to a register; bytes counts float32s in bytes.
func (e *emitter) pointer(f function, name, reg string) {
	a := f.args[name]
	if strings.HasPrefix(a.kind, "[]") {
		e.line("MOVD %s_base+%d(FP), %s", name, a.at, reg)
		return
	}
	e.line("MOVD %s+%d(FP), %s", name, a.at, reg)
}

func (e *emitter) bytes(f function, name, reg string) {
	e.pointer(f, name, reg)
	e.line("LSL $2, %s, %s", reg, reg)
}

// length loads that of a slice.
func (e *emitter) length(f function, name, reg string) {
	e.line("MOVD %s_len+%d(FP), %s", name, f.args[name].at+8, reg)
}

// number is a register full of a parameter.
func (e *emitter) number(f function, name string) vec {
	v := e.fixed()
	e.line("FMOVS %s+%d(FP), F%d", name, f.args[name].at, v)
	e.dup(v, v, 0)
	return v
}

// give returns lane 0 of a register.
func (e *emitter) give(f function, v vec) {
	e.line("FMOVS F%d, ret+%d(FP)", v, f.ret)
	e.end()
}

func (e *emitter) end() { e.line("RET") }

// lanesOf writes the registers from v on as Go's assembler lists them.
func lanesOf(v vec, n int) string {
	var l []string
	for i := range n {
		l = append(l, fmt.Sprintf("V%d.S4", int(v)+i))
	}
	return "[" + strings.Join(l, ", ") + "]"
}
