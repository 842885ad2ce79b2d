package webp

import "math/bits"

const (
	rootBits    = 8  // of a code are looked up at once, the others of longer codes in a second table
	longestCode = 15 // bits
	maxSymbols  = 256 + 24 + 1<<11
)

// lengthOrder is the order of the lengths of the code of lengths.
var lengthOrder = [19]byte{17, 18, 0, 1, 2, 3, 4, 5, 16, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}

// code reads a code of n symbols and returns its table: entries have a symbol above and its code's length in
// the lowest byte; a length over rootBits in the first 2^rootBits tells that the second table begins at the
// number above, and how many bits more it takes.
func (d *lossless) code(n int, used bool) ([]uint32, error) {
	lengths := d.lengths[:n]
	clear(lengths)
	if d.flag() {
		two, wide := d.flag(), d.flag()
		symbols := []int{0}
		if symbols[0] = d.bits(1); wide {
			symbols[0] |= d.bits(7) << 1
		}
		if two {
			symbols = append(symbols, d.bits(8))
		}
		for _, s := range symbols {
			if s >= n {
				return nil, errLossless
			}
			lengths[s] = 1
		}
	} else if err := d.codeLengths(lengths); err != nil {
		return nil, err
	}
	if !used {
		return nil, d.err()
	}
	return d.table(lengths)
}

// codeLengths reads lengths, which are coded themselves.
func (d *lossless) codeLengths(lengths []byte) error {
	var own [19]byte
	for i := range d.bits(4) + 4 {
		own[lengthOrder[i]] = byte(d.bits(3))
	}
	table, err := d.table(own[:])
	if err != nil {
		return err
	}
	most := len(lengths)
	if d.flag() {
		if most = 2 + d.bits(2+2*d.bits(3)); most > len(lengths) {
			return errLossless
		}
	}
	before := byte(8)
	for i := 0; i < len(lengths) && most > 0; most-- {
		l := d.symbol(table)
		if l < 16 {
			lengths[i] = byte(l)
			if i++; l > 0 {
				before = byte(l)
			}
			continue
		}
		repeated, more, least := before, 2, 3
		if l > 16 {
			repeated, more = 0, 3
		}
		if l == 18 {
			more, least = 7, 11
		}
		times := least + d.bits(more)
		if i+times > len(lengths) {
			return errLossless
		}
		for range times {
			lengths[i] = repeated
			i++
		}
	}
	return d.err()
}

// table makes the table of a code from its lengths. A code that leaves something open is an error, unless it
// is of one symbol, which then takes no bits.
func (d *lossless) table(lengths []byte) ([]uint32, error) {
	var count, offset [longestCode + 2]int
	for _, l := range lengths {
		count[l]++
	}
	count[0] = 0
	total, open := 0, 1
	for l := 1; l <= longestCode; l++ {
		offset[l] = total
		total += count[l]
		if open = open<<1 - count[l]; open < 0 {
			return nil, errLossless
		}
	}
	sorted := d.sorted[:total]
	for s, l := range lengths {
		if l > 0 {
			sorted[offset[l]] = uint16(s)
			offset[l]++
		}
	}
	t := make([]uint32, 1<<rootBits, 1<<rootBits+secondTables(count))
	if total == 1 {
		for i := range t {
			t[i] = uint32(sorted[0]) << 8
		}
		return t, nil
	}
	if open != 0 {
		return nil, errLossless
	}
	return fillTable(t, sorted, count), nil
}

// secondTables is how many entries the second tables have at most.
func secondTables(count [longestCode + 2]int) (n int) {
	for l := rootBits + 1; l <= longestCode; l++ {
		n += count[l] << (longestCode - l)
	}
	if n > 0 {
		n += 1 << (longestCode - rootBits)
	}
	return min(n, 1<<longestCode)
}

// fillTable fills the look-up table of codes, given symbols sorted by code length. Codes longer
// than rootBits lead to a second table.
func fillTable(t []uint32, sorted []uint16, count [longestCode + 2]int) []uint32 {
	code, second, at, size := 0, -1, 0, 0
	for l := 1; l <= longestCode; l, code = l+1, code<<1 {
		for ; count[l] > 0; count[l], code, sorted = count[l]-1, code+1, sorted[1:] {
			e := uint32(sorted[0])<<8 | uint32(l)
			turned := int(bits.Reverse16(uint16(code)) >> (16 - l))
			if l <= rootBits {
				for i := turned; i < 1<<rootBits; i += 1 << l {
					t[i] = e
				}
				continue
			}
			if root := turned & (1<<rootBits - 1); root != second {
				second, at, size = root, len(t), secondBits(l, count)
				t[root] = uint32(at)<<8 | uint32(rootBits+size)
				t = append(t, make([]uint32, 1<<size)...)
			}
			for i := turned >> rootBits; i < 1<<size; i += 1 << (l - rootBits) {
				t[at+i] = e
			}
		}
	}
	return t
}

// secondBits is how many bits a second table is looked up by that begins with a code of l bits; count is of
// those to come.
func secondBits(l int, count [longestCode + 2]int) int {
	for left := 1 << (l - rootBits); l < longestCode; l++ {
		if left -= count[l]; left <= 0 {
			break
		}
		left <<= 1
	}
	return l - rootBits
}
