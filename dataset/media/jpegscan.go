package media

import "math/bits"

// part decodes one block's part in a scan of a progressive image.
func (r *jpegReader) part(p *plane, x, y int) error {
	at := y*p.bw + x
	c, set := (*[64]int16)(p.coef[at*64:]), &p.set[at]
	ss := r.ss
	if ss == 0 {
		if r.ah > 0 {
			c[0] |= int16(r.bits.bit() << r.al)
			return nil
		}
		n, err := r.bits.symbol(r.huff[0][p.dc])
		if err != nil || n > sizeMax(true) {
			return errJPEG
		}
		if p.pred += r.bits.extend(n); abs(p.pred<<r.al)*int(p.weights[0]) > firstMax {
			return errJPEG
		}
		c[0] = int16(p.pred << r.al)
		ss = 1
	}
	switch {
	case r.se == 0:
		return nil
	case r.ah > 0:
		return r.refine(c, set, p)
	case r.eobrun > 0:
		r.eobrun--
		return nil
	}
	return r.fresh(c, set, r.huff[1][p.ac], ss)
}

// fresh reads the coefficients of a block from position ss on for the first time.
func (r *jpegReader) fresh(c *[64]int16, set *uint64, h *huffman, ss int) error {
	for k := ss; k <= r.se; k++ {
		if r.bits.n < 32 {
			r.bits.refill()
		}
		if e := h.whole[r.bits.acc>>(64-lookBits)]; e != 0 && byte(e>>8) < blockEnd {
			r.bits.acc <<= e & 63
			r.bits.n -= uint(e & 63)
			if k += int(byte(e>>8)) - 1; e>>16 != 0 {
				if k > r.se {
					return errJPEG
				}
				c[zigzag[k&63]&63] = int16(e>>16) << r.al
				*set |= 1 << (k & 63)
			}
			continue
		}
		s, err := r.bits.symbol(h)
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
		if k > r.se || n > sizeMax(false) {
			return errJPEG
		}
		c[zigzag[k]] = int16(r.bits.extend(n) << r.al)
		*set |= 1 << k
	}
	return nil
}

// refine adds a bit to the coefficients of a block (T.81, G.1.2.3).
func (r *jpegReader) refine(c *[64]int16, set *uint64, p *plane) error {
	k, delta := r.ss, int16(1<<r.al)
	h := r.huff[1][p.ac]
	for k <= r.se && r.eobrun == 0 {
		if r.bits.n < 32 {
			r.bits.refill()
		}
		e := h.whole[r.bits.acc>>(64-lookBits)]
		if on := int(byte(e >> 8)); e != 0 && on < blockEnd && uint16(e>>16)+1 <= 2 { // one of -1, 0 and 1
			r.bits.acc <<= e & 63
			r.bits.n -= uint(e & 63)
			k = r.correct(c, *set, k, on-1, delta)
			if e>>16 != 0 {
				if k > r.se {
					return errJPEG
				}
				c[zigzag[k&63]&63] = int16(e>>16) * delta
				*set |= 1 << (k & 63)
			}
			k++
			continue
		}
		s, err := r.bits.symbol(h)
		if err != nil {
			return err
		}
		run, n := s>>4, s&15
		value := int16(0)
		if n == 0 && run < 15 {
			r.eobrun = 1<<run + int(r.bits.take(run))
			break
		}
		if n > 1 {
			return errJPEG // a coefficient that comes so late is one bit
		}
		if n > 0 {
			value = -delta
			if r.bits.bit() == 1 {
				value = delta
			}
		}
		k = r.correct(c, *set, k, run, delta)
		if value != 0 {
			if k > r.se {
				return errJPEG
			}
			c[zigzag[k]] = value
			*set |= 1 << k
		}
		k++
	}
	if r.eobrun > 0 {
		r.correct(c, *set, k, 64, delta)
		r.eobrun--
	}
	return nil
}

// correct refines the coefficients from k on until run zeros are passed, and returns where the next zero is.
// set has a bit for each coefficient, in the file's order, that is not zero.
func (r *jpegReader) correct(c *[64]int16, set uint64, k, run int, delta int16) int {
	acc, n := r.bits.acc, r.bits.n
	for k <= r.se {
		next := min(k+bits.TrailingZeros64(set>>(k&63)), r.se+1)
		if next-k > run {
			k += run
			break
		}
		run -= next - k
		if k = next; k > r.se {
			break
		}
		if n == 0 {
			r.bits.acc, r.bits.n = acc, n
			r.bits.refill()
			acc, n = r.bits.acc, r.bits.n
		}
		v := &c[zigzag[k&63]&63]
		sign := *v >> 15 // without jumps, as bits are even chances
		more := int16(int64(acc)>>63) & delta &^ *v
		acc <<= 1
		n--
		*v += more ^ sign - sign
		k++
	}
	r.bits.acc, r.bits.n = acc, n
	return k
}
