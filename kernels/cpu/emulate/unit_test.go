package emulate

import (
	"encoding/binary"
	"fmt"
)

// Limits of palette 1, the only one there is.
const (
	tileCount    = 8
	tileRows     = 16
	tileRowBytes = 64
)

// tile is the data of a tile register: rows of 64 bytes as words of 32 bits.
type tile [tileRows][tileRowBytes / 4]uint32

// unit is the tile state of one thread. Rows and row bytes are 0 for tiles that are not configured.
type unit struct {
	configured bool
	rows       [tileCount]int
	bytes      [tileCount]int
	data       [tileCount]tile
}

// memory is the address space of the program. Both move rows of width bytes, stride apart in it and close
// together in buf; an address that the program may not use is an error.
type memory interface {
	read(buf []byte, address, stride uint64, rows, width int) error
	write(buf []byte, address, stride uint64, rows, width int) error
}

// execute carries out one instruction as the Intel SDM has it, volume 2, except that start_row must be 0: it
// is for instructions that were interrupted, which these are not. An error is an exception that a processor
// would raise: #UD and #GP for a broken rule, else of memory.
func (u *unit) execute(in instruction, r *registers, m memory) error {
	switch in.op {
	case ldTileCfg:
		var c [64]byte
		if err := m.read(c[:], in.address(r), 0, 1, len(c)); err != nil {
			return err
		}
		return u.configure(&c)
	case stTileCfg:
		c := u.configuration()
		return m.write(c[:], in.address(r), 0, 1, len(c))
	case tileRelease:
		*u = unit{}
		return nil
	case tdpBF16PS:
		return u.product(in)
	}
	if err := u.valid(in.tile); err != nil {
		return err
	}
	if in.op == tileZero {
		u.data[in.tile] = tile{}
		return nil
	}
	if u.bytes[in.tile]%4 != 0 {
		return fmt.Errorf("#UD: rows of tile %d have %d bytes, no multiple of 4", in.tile, u.bytes[in.tile])
	}
	return u.move(in, r, m)
}

// address is that of a configuration: an index is a part of it, unlike in operands of tiles.
func (in *instruction) address(r *registers) uint64 {
	return r[in.base] + r[in.index]<<in.scale + uint64(in.disp)
}

// move loads or stores a tile.
func (u *unit) move(in instruction, r *registers, m memory) error {
	at, stride := r[in.base]+uint64(in.disp), r[in.index]<<in.scale
	rows, width := u.rows[in.tile], u.bytes[in.tile]
	var buf [tileRows * tileRowBytes]byte
	t := &u.data[in.tile]
	if in.op == tileStoreD {
		for i := range rows {
			for j := range width / 4 {
				binary.LittleEndian.PutUint32(buf[i*width+4*j:], t[i][j])
			}
		}
		return m.write(buf[:rows*width], at, stride, rows, width)
	}
	if err := m.read(buf[:rows*width], at, stride, rows, width); err != nil {
		return err
	}
	*t = tile{}
	for i := range rows {
		for j := range width / 4 {
			t[i][j] = binary.LittleEndian.Uint32(buf[i*width+4*j:])
		}
	}
	return nil
}

// configure loads a configuration: byte 0 is the palette, byte 1 start_row, 16 to 31 the bytes of the rows
// of each tile, 48 to 55 their numbers.
func (u *unit) configure(c *[64]byte) error {
	if c[0] == 0 {
		*u = unit{}
		return nil
	}
	if c[0] != 1 {
		return fmt.Errorf("#GP: LDTILECFG of palette %d", c[0])
	}
	if c[1] != 0 {
		return fmt.Errorf("LDTILECFG with start_row %d, which only an interrupted instruction has", c[1])
	}
	for i, x := range c {
		if x != 0 && (i >= 2 && i < 16 || i >= 32 && i < 48 || i >= 56) {
			return fmt.Errorf("#GP: LDTILECFG with byte %d = %d, which is reserved", i, x)
		}
	}
	next := unit{configured: true}
	for t := range tileCount {
		rows, width := int(c[48+t]), int(binary.LittleEndian.Uint16(c[16+2*t:]))
		if rows > tileRows || width > tileRowBytes || (rows == 0) != (width == 0) {
			return fmt.Errorf("#GP: LDTILECFG of tile %d with %d rows of %d bytes", t, rows, width)
		}
		next.rows[t], next.bytes[t] = rows, width
	}
	*u = next
	return nil
}

// configuration is the operand of STTILECFG.
func (u *unit) configuration() (c [64]byte) {
	if !u.configured {
		return c
	}
	c[0] = 1
	for t := range tileCount {
		c[48+t] = byte(u.rows[t])
		binary.LittleEndian.PutUint16(c[16+2*t:], uint16(u.bytes[t]))
	}
	return c
}

// valid tells why a tile may not be used, which the processor answers with an invalid-opcode fault.
func (u *unit) valid(t int) error {
	if !u.configured {
		return fmt.Errorf("#UD: tile %d is used, but none is configured", t)
	}
	if u.rows[t] == 0 {
		return fmt.Errorf("#UD: tile %d is used, but not configured", t)
	}
	return nil
}
