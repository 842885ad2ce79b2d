package main

// base is e or 2: how powers of it are computed, with the polynomials of exp32 and exp2 in isa_go.go.
type power struct {
	low, high, scale vec // scale is log2 of the base; 0 for 2
	hi, lo           vec // ln 2 in two parts, of e
	c                []vec
	one, bias        vec
}

func (e *emitter) powers(natural bool) *power {
	p := &power{one: e.constant(1), bias: e.bits(127, "127")}
	if !natural {
		p.low, p.high = e.constant(-160), e.constant(160)
		for _, c := range []float32{1.326472731307149e-3, 9.671512991189957e-3, 5.550733581185341e-2, 2.4022242426872253e-1, 6.931470036506653e-1} {
			p.c = append(p.c, e.constant(c))
		}
		return p
	}
	p.low, p.high, p.scale = e.constant(-104), e.constant(104), e.constant(1.44269504088896341)
	p.hi, p.lo = e.constant(0.693359375), e.constant(-2.12194440e-4)
	for _, c := range []float32{1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1} {
		p.c = append(p.c, e.constant(c))
	}
	return p
}

// pow is base^x; a NaN stays one.
func (e *emitter) pow(p *power, x vec) vec {
	t, n := e.two(fmax, x, p.low), e.reg()
	e.is(fmin, t, t, p.high)
	r := t
	if p.scale == 0 {
		e.of(frintn, n, t)
		e.is(fsub, r, t, n)
	} else {
		e.is(fmul, n, t, p.scale)
		e.of(frintn, n, n)
		e.is(fmls, r, n, p.hi)
		e.is(fmls, r, n, p.lo)
	}
	q, s := e.reg(), e.reg()
	e.copy(q, p.c[0])
	for _, c := range p.c[1:] { // q and s by turns
		e.copy(s, c)
		e.is(fmla, s, q, r)
		q, s = s, q
	}
	if p.scale != 0 { // q·r² + r + 1
		e.copy(s, r)
		e.is(fmla, s, e.two(fmul, q, r), r)
		e.is(fadd, q, s, p.one)
	} else {
		e.copy(s, p.one)
		e.is(fmla, s, q, r)
		q, s = s, q
	}
	half := s
	e.of(fcvtns, n, n)
	e.sshr(half, n, 1)
	e.is(isub, n, n, half)
	for _, k := range []vec{half, n} {
		e.is(iadd, k, k, p.bias)
		e.shl(k, k, 23)
		e.is(fmul, q, q, k)
	}
	return q
}

// sigmoid is 1/(1+e^-x).
func (e *emitter) sigmoid(p *power, x vec) vec {
	m := e.reg()
	e.word(0x6EA0F800|uint32(x)<<5|uint32(m), "FNEG V%d, V%d", m, x)
	q := e.pow(p, m)
	e.is(fadd, q, q, p.one)
	e.is(fdiv, q, p.one, q)
	return q
}

func (e *emitter) exponentials() {
	e.gates()
	e.softmax()
	e.gelus()
	e.halves()
}

func (e *emitter) gates() {
	e.each("gateN", "y, x []float32, a, b float32", "is y = sigmoid(x·(a + b·x²)).", []string{"x"}, []string{"y"}, func(f function) func([]vec) []vec {
		p, a, b := e.powers(true), e.number(f, "a"), e.number(f, "b")
		low, high := e.constant(-1e12), e.constant(1e12) // whose square is finite, so that 0 times it is 0
		return func(x []vec) []vec {
			t := e.reg()
			e.copy(t, a)
			bounded := e.two(fmin, e.two(fmax, x[0], low), high)
			e.is(fmla, t, e.two(fmul, b, bounded), bounded)
			e.is(fmul, t, t, x[0])
			return []vec{e.sigmoid(p, t)}
		}
	})
	e.each("gateBwdN", "dx, dy, x, s []float32, a, b float32", "is dx = dy·s·(1 + x·(1-s)·(a + 3b·x²)).", []string{"dy", "x", "s"}, []string{"dx"}, func(f function) func([]vec) []vec {
		one, three, a, b := e.constant(1), e.constant(3), e.number(f, "a"), e.number(f, "b")
		e.is(fmul, b, b, three)
		low, high := e.constant(-1e4), e.constant(1e4) // beyond, s or 1-s is nothing, and so is what x makes of it
		return func(x []vec) []vec {
			t, u := e.reg(), e.reg()
			e.is(fmax, x[1], x[1], low)
			e.is(fmin, x[1], x[1], high)
			e.copy(t, a)
			e.is(fmla, t, e.two(fmul, b, x[1]), x[1])
			e.is(fmul, t, t, e.two(fmul, x[1], e.two(fsub, one, x[2])))
			e.is(fadd, t, t, one)
			e.is(fmul, u, x[0], x[2])
			return []vec{e.two(fmul, u, t)}
		}
	})
	e.each("swigluN", "y, g, u []float32", "is y = g·sigmoid(g)·u.", []string{"g", "u"}, []string{"y"}, func(function) func([]vec) []vec {
		p := e.powers(true)
		return func(x []vec) []vec {
			return []vec{e.two(fmul, e.two(fmul, x[0], e.sigmoid(p, x[0])), x[1])}
		}
	})
	e.each("swigluBwdN", "dg, du, dy, g, u []float32", "gives the gradients of swiglu.", []string{"dy", "g", "u"}, []string{"dg", "du"}, func(function) func([]vec) []vec {
		p := e.powers(true)
		return func(x []vec) []vec {
			d, g, u := x[0], x[1], x[2]
			s := e.sigmoid(p, g)
			t, v := e.two(fsub, p.one, s), e.reg()
			e.copy(v, p.one)
			e.is(fmla, v, g, t)
			e.is(fmul, t, d, u)
			e.is(fmul, t, t, s)
			e.is(fmul, t, t, v)
			e.is(fmul, v, d, g)
			e.is(fmul, v, v, s)
			return []vec{t, v}
		}
	})
}

// softmax writes exp and soft, whose sums are returned by way of part, four numbers; and softGrad.
func (e *emitter) softmax() {
	e.each("expN", "y, x, part []float32, scale, shift, c float32", "is y = c·exp(x·scale + shift), and adds y to part.", []string{"x"}, []string{"y"}, func(f function) func([]vec) []vec {
		p, scale, shift, c := e.powers(true), e.number(f, "scale"), e.number(f, "shift"), e.number(f, "c")
		sum := e.part(f)
		return func(x []vec) []vec {
			t := e.reg()
			e.copy(t, shift)
			e.is(fmla, t, x[0], scale)
			q := e.pow(p, t)
			e.is(fmul, q, q, c)
			sum(q)
			return []vec{q}
		}
	})
	e.each("softN", "y, x, part []float32, scale, shift float32", "is y = 2^(x·scale - shift), and adds y to part.", []string{"x"}, []string{"y"}, func(f function) func([]vec) []vec {
		p, scale, shift := e.powers(false), e.number(f, "scale"), e.number(f, "shift")
		sum := e.part(f)
		return func(x []vec) []vec {
			t := e.two(fmul, x[0], scale)
			e.is(fsub, t, t, shift)
			q := e.pow(p, t)
			sum(q)
			return []vec{q}
		}
	})
	// lse is rounded: what is above 0 is by that alone, and a lot where scores are large.
	e.each("softGradN", "p, ds, s, dp []float32, scale, lse, delta, factor float32", "gives probabilities and the gradients of scores.", []string{"s", "dp"}, []string{"p", "ds"}, func(f function) func([]vec) []vec {
		p, scale, lse, delta, factor := e.powers(false), e.number(f, "scale"), e.number(f, "lse"), e.number(f, "delta"), e.number(f, "factor")
		p.high = e.constant(0)
		return func(x []vec) []vec {
			t := e.two(fmul, x[0], scale)
			e.is(fsub, t, t, lse)
			q, d := e.pow(p, t), e.two(fsub, x[1], delta)
			e.is(fmul, d, d, factor)
			e.is(fmul, d, d, q)
			return []vec{q, d}
		}
	})
}

// part adds to four numbers in memory, at R14.
func (e *emitter) part(f function) func(v vec) {
	e.pointer(f, "part", "R14")
	return func(v vec) {
		s := e.reg()
		e.line("VLD1 (R14), [V%d.S4]", s)
		e.is(fadd, s, s, v)
		e.line("VST1 [V%d.S4], (R14)", s)
	}
}

// normal is Φ(x) and exp(-x²/2), as normal of isa_go.go has them.
func (e *emitter) normal(p *power, phi []vec, third, minus, x vec) (vec, vec) {
	t, a := e.reg(), e.reg()
	e.of(fabs, a, x)
	e.copy(t, p.one)
	e.is(fmla, t, a, third)
	e.is(fdiv, t, p.one, t)
	e.is(fmul, a, x, x)
	e.is(fmul, a, a, minus)
	ex := e.pow(p, a)
	q, s := e.reg(), e.reg()
	e.copy(q, phi[0])
	for _, c := range phi[1:] {
		e.copy(s, c)
		e.is(fmla, s, q, t)
		q, s = s, q
	}
	e.is(fmul, t, t, ex)
	e.is(fmul, q, q, t)
	e.is(fsub, s, p.one, q)
	e.clear(t)
	e.is(fcmgt, t, x, t)
	e.is(bsl, t, s, q)
	return t, ex
}

func (e *emitter) phi() (p *power, phi []vec, third, minus vec) {
	p = e.powers(false)
	for _, c := range []float32{-0.06767154484987259, 0.23011320829391479, -0.1755657196044922, 0.20424160361289978,
		0.02361480332911015, 0.10061056166887283, 0.09147819876670837, 0.0931788831949234} {
		phi = append(phi, e.constant(c))
	}
	return p, phi, e.constant(0.33 * 1.41421356237309504880168872420969807856967187537694 / 2), e.constant(-1.44269504088896340735992468100189214 / 2)
}

func (e *emitter) gelus() {
	e.each("geluN", "y, x []float32", "is y = x·Φ(x).", []string{"x"}, []string{"y"}, func(function) func([]vec) []vec {
		p, phi, third, minus := e.phi()
		return func(x []vec) []vec {
			q, _ := e.normal(p, phi, third, minus, x[0])
			return []vec{e.two(fmul, x[0], q)}
		}
	})
	e.each("geluBwdN", "dx, dy, x []float32", "is dx = dy·(Φ(x) + x·φ(x)).", []string{"dy", "x"}, []string{"dx"}, func(function) func([]vec) []vec {
		p, phi, third, minus := e.phi()
		root := e.constant(0.3989422804014327)
		return func(x []vec) []vec {
			q, ex := e.normal(p, phi, third, minus, x[1])
			e.is(fmul, ex, ex, x[1])
			e.is(fmla, q, ex, root)
			e.is(fmul, q, q, x[0])
			return []vec{q}
		}
	})
}

// halves writes conversions from and to bfloat16, four numbers at a time.
func (e *emitter) halves() {
	f := e.begin("fromBF16N", "y []float32, x []uint16", "", "widens bfloat16.")
	e.length(f, "y", "R8")
	e.pointer(f, "y", "R0")
	e.pointer(f, "x", "R1")
	e.line("LSR $2, R8")
	e.turns(func() {
		e.line("VLD1.P 8(R1), [V0.H4]")
		e.word(0x2E613800|0<<5|1, "SHLL V1.4S, V0.4H, #16")
		e.line("VST1.P [V1.S4], 16(R0)")
	})
	e.end()
	f = e.begin("toBF16N", "y []uint16, x []float32", "", "rounds to bfloat16, to the nearest, of two the even one; a NaN stays one.")
	e.length(f, "y", "R8")
	e.pointer(f, "y", "R0")
	e.pointer(f, "x", "R1")
	half, one, quiet := e.bits(0x7fff, "half less one"), e.bits(1, "1"), e.bits(0x40<<16, "a quiet NaN's bit")
	e.line("LSR $2, R8")
	e.turns(func() {
		e.line("VLD1.P 16(R1), [V0.S4]")
		e.ushr(1, 0, 16)
		e.is(and, 1, 1, one)
		e.is(iadd, 1, 1, half)
		e.is(iadd, 1, 1, 0)
		e.is(orr, 2, 0, quiet)
		e.is(fcmeq, 3, 0, 0)
		e.is(bsl, 3, 1, 2)
		e.word(0x0F108400|3<<5|4, "SHRN V4.4H, V3.4S, #16")
		e.line("VST1.P [V4.H4], 8(R0)")
	})
	e.end()
}
