package main

// sums writes reductions of whole vectors: four chains, and then one.
func (e *emitter) sums() {
	e.sum("dotN", "a, b []float32", "is Σ a·b.", []string{"a", "b"}, nil, func(s vec, x []vec) { e.is(fmla, s, x[0], x[1]) })
	e.sum("dot3N", "a, c, b []float32", "is Σ a·b·c.", []string{"a", "c", "b"}, nil, func(s vec, x []vec) { e.is(fmla, s, e.two(fmul, x[0], x[2]), x[1]) })
	e.sum("sumN", "x []float32", "is Σ x.", []string{"x"}, nil, func(s vec, x []vec) { e.is(fadd, s, s, x[0]) })
	var mean vec
	e.sum("centredN", "x []float32, mean float32", "is Σ (x - mean)².", []string{"x"}, func(f function) { mean = e.number(f, "mean") }, func(s vec, x []vec) {
		d := e.two(fsub, x[0], mean)
		e.is(fmla, s, d, d)
	})
	e.reduce("maxN", "x []float32", "is max x, and ignores NaN.", 0xff800000, []string{"x"}, nil, func(s vec, x []vec) { e.is(fmaxnm, s, s, x[0]) }, fmaxnm, fmaxp)
}

func (e *emitter) sum(name, params, doc string, in []string, more func(function), take func(s vec, x []vec)) {
	e.reduce(name, params, doc, 0, in, more, take, fadd, faddp)
}

// reduce writes a function of vectors that gives one number; start is what the chains begin with.
func (e *emitter) reduce(name, params, doc string, start uint32, in []string, more func(function), take func(s vec, x []vec), join, pairs op) {
	f := e.begin(name, params, "float32", doc)
	e.length(f, in[0], "R8")
	at := []string{"R0", "R1", "R2"}
	for i, p := range in {
		e.pointer(f, p, at[i])
	}
	if more != nil {
		more(f)
	}
	begin := e.bits(start, "")
	chains := [4]vec{e.fixed(), e.fixed(), e.fixed(), e.fixed()}
	for _, c := range chains {
		e.copy(c, begin)
	}
	e.line("LSR $2, R8")
	turn := 0
	e.turns(func() {
		e.next = 0
		var x []vec
		for i := range in {
			v := e.reg()
			x = append(x, v)
			e.line("VLD1.P 16(%s), [V%d.S4]", at[i], v)
		}
		take(chains[turn%4], x)
		turn++
	})
	e.is(join, chains[0], chains[0], chains[1])
	e.is(join, chains[2], chains[2], chains[3])
	e.is(join, chains[0], chains[0], chains[2])
	e.is(pairs, chains[0], chains[0], chains[0])
	e.is(pairs, chains[0], chains[0], chains[0])
	e.give(f, chains[0])
}
