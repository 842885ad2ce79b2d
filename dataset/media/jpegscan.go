package media

// huffman decodes codes of up to 16 bits.
type huffman struct {
	maxCode [18]int32 // of each length, -1 for none
	offset  [17]int32 // of a length's values
	values  []byte
}

// newHuffman reads a table and returns how many bytes it took.
func newHuffman(b []byte) (*huffman, int, error) {
	h, total := &huffman{}, 0
	code := int32(0)
	for l := 1; l <= 16; l++ {
		n := int32(b[l-1])
		h.offset[l] = int32(total) - code
		code += n
		total += int(n)
		h.maxCode[l] = code - 1
		if n == 0 {
			h.maxCode[l] = -1
		}
		if code > 1<<l {
			return nil, 0, errJPEG
		}
		code <<= 1
	}
	if total > 256 || len(b) < 16+total {
		return nil, 0, errJPEG
	}
	h.values = b[16 : 16+total]
	return h, 16 + total, nil
}

// bitReader reads the bits between two markers; behind them are zeros, as libjpeg has it.
type bitReader struct {
	b   []byte
	acc uint32
	n   int
}

func (r *bitReader) bit() int32 {
	if r.n == 0 {
		r.acc = 0
		if len(r.b) > 0 && r.b[0] != 0xff {
			r.acc, r.b = uint32(r.b[0]), r.b[1:]
		} else if len(r.b) > 1 && r.b[1] == 0 {
			r.acc, r.b = 0xff, r.b[2:]
		}
		r.n = 8
	}
	r.n--
	return int32(r.acc>>r.n) & 1
}

func (r *bitReader) take(n int) (v int32) {
	for range n {
		v = v<<1 | r.bit()
	}
	return v
}

// extend reads n bits of a signed number.
func (r *bitReader) extend(n int) int {
	if n == 0 {
		return 0
	}
	v := int(r.take(n))
	if v < 1<<(n-1) {
		v -= 1<<n - 1
	}
	return v
}

func (r *bitReader) symbol(h *huffman) (int, error) {
	if h == nil {
		return 0, errJPEG
	}
	code := int32(0)
	for l := 1; l <= 16; l++ {
		code = code<<1 | r.bit()
		if code <= h.maxCode[l] {
			return int(h.values[code+h.offset[l]]), nil
		}
	}
	return 0, errJPEG
}

// nextRestart drops what is left before a restart marker, and the marker.
func (r *bitReader) nextRestart() {
	r.n = 0
	for i := 0; i+1 < len(r.b); i++ {
		if r.b[i] != 0xff || r.b[i+1] == 0 || r.b[i+1] == 0xff {
			continue
		}
		r.b = r.b[i:]
		if r.b[1] >= 0xd0 && r.b[1] <= 0xd7 {
			r.b = r.b[2:]
		}
		return
	}
}

// block decodes one block of a scan.
func (r *jpegReader) block(p *plane, x, y int) error {
	c := p.coef[(y*p.bw+x)*64:][:64]
	ss := r.ss
	if ss == 0 {
		if r.ah > 0 {
			c[0] |= int16(r.bits.bit() << r.al)
			return nil
		}
		n, err := r.bits.symbol(r.huff[0][p.dc])
		if err != nil || n > 16 {
			return errJPEG
		}
		p.pred += r.bits.extend(n)
		c[0] = int16(p.pred << r.al)
		ss = 1
	}
	switch {
	case r.se == 0:
		return nil
	case r.ah > 0:
		return r.refine(c, p)
	case r.eobrun > 0:
		r.eobrun--
		return nil
	}
	for k := ss; k <= r.se; k++ {
		s, err := r.bits.symbol(r.huff[1][p.ac])
		if err != nil {
			return err
		}
		run, n := s>>4, s&15
		if n == 0 && run < 15 {
			r.eobrun = 0
			if r.progressive {
				r.eobrun = 1<<run + int(r.bits.take(run)) - 1
			}
			return nil
		}
		if k += run; n == 0 {
			continue
		}
		if k > r.se {
			return errJPEG
		}
		c[zigzag[k]] = int16(r.bits.extend(n) << r.al)
	}
	return nil
}

// refine adds a bit to the coefficients of a block (T.81, G.1.2.3).
func (r *jpegReader) refine(c []int16, p *plane) error {
	k, delta := r.ss, int16(1<<r.al)
	for k <= r.se && r.eobrun == 0 {
		s, err := r.bits.symbol(r.huff[1][p.ac])
		if err != nil {
			return err
		}
		run, n := s>>4, s&15
		value := int16(0)
		if n == 0 && run < 15 {
			r.eobrun = 1<<run + int(r.bits.take(run))
			break
		}
		if n > 0 {
			value = -delta
			if r.bits.bit() == 1 {
				value = delta
			}
		}
		k = r.correct(c, k, run, delta)
		if value != 0 && k <= r.se {
			c[zigzag[k]] = value
		}
		k++
	}
	if r.eobrun > 0 {
		r.correct(c, k, 64, delta)
		r.eobrun--
	}
	return nil
}

// correct refines the coefficients from k on until run zeros are passed, and returns where the next zero is.
func (r *jpegReader) correct(c []int16, k, run int, delta int16) int {
	for ; k <= r.se; k++ {
		v := &c[zigzag[k]]
		if *v == 0 {
			if run == 0 {
				return k
			}
			run--
			continue
		}
		if r.bits.bit() == 1 && *v&delta == 0 {
			if *v > 0 {
				*v += delta
			} else {
				*v -= delta
			}
		}
	}
	return k
}
