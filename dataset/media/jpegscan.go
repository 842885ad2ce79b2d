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
		if err != nil || n > 15 {
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
		return r.refine(c, set, p)
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
		*set |= 1 << k
	}
	return nil
}

// refine adds a bit to the coefficients of a block (T.81, G.1.2.3).
func (r *jpegReader) refine(c *[64]int16, set *uint64, p *plane) error {
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
		k = r.correct(c, *set, k, run, delta)
		if value != 0 && k <= r.se {
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
		bit := int64(acc) < 0
		acc <<= 1
		n--
		if v := &c[zigzag[k&63]&63]; bit && *v&delta == 0 {
			if *v > 0 {
				*v += delta
			} else {
				*v -= delta
			}
		}
		k++
	}
	r.bits.acc, r.bits.n = acc, n
	return k
}
