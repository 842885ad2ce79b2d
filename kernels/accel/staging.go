package accel

const (
	ringBytes  = 8 << 20 // of pinned memory a device
	ringPieces = 8
	pieceBytes = ringBytes / ringPieces
)

// ring is pinned memory in pieces, through which all goes that the host writes or reads. A piece is used
// again when the copy that it took part in is done.
type ring struct {
	drv  Driver
	mem  []byte
	busy [ringPieces]Mark // the last copy of a piece; 0 for none
	next int              // the piece after this one is used next
	at   int              // bytes of it that are taken: small writes share a piece
}

// piece is at most n bytes of pinned memory, and which piece they are of.
func (r *ring) piece(n int) (b []byte, i int, err error) {
	if r.mem == nil {
		if r.mem, err = r.drv.Pinned(ringBytes); err != nil {
			return nil, 0, err
		}
		r.next, r.at = 0, 0
	}
	n = min(n, pieceBytes)
	if r.at+n > pieceBytes {
		r.next, r.at = (r.next+1)%ringPieces, 0
	}
	if r.at == 0 {
		if err := r.free(r.next); err != nil {
			return nil, 0, err
		}
	}
	from := r.next*pieceBytes + r.at
	r.at += (n + 63) / 64 * 64
	return r.mem[from : from+n], r.next, nil
}

// free waits until a piece's last copy is done.
func (r *ring) free(i int) error {
	m := r.busy[i]
	if m == 0 {
		return nil
	}
	r.busy[i] = 0
	err := r.drv.Wait(m)
	r.drv.Drop(m)
	return err
}

// used puts a mark behind the copy that a piece takes part in.
func (r *ring) used(i int) error {
	m, err := r.drv.Mark()
	if err != nil {
		return err
	}
	if r.busy[i] != 0 {
		r.drv.Drop(r.busy[i])
	}
	r.busy[i] = m
	return nil
}

// write copies from the host behind all that was issued.
func (r *ring) write(to uint64, src []byte) error {
	for len(src) > 0 {
		p, i, err := r.piece(len(src))
		if err != nil {
			return err
		}
		copy(p, src)
		if err := r.drv.Upload(to, p); err != nil {
			return err
		}
		if err := r.used(i); err != nil {
			return err
		}
		to, src = to+uint64(len(p)), src[len(p):]
	}
	return nil
}

// read copies to the host when all that was issued is done: one piece is under way while the one before is copied out.
func (r *ring) read(dst []byte, from uint64) error {
	type part struct {
		pinned, dst []byte
		i           int
	}
	var last *part
	out := func() error {
		if last == nil {
			return nil
		}
		err := r.free(last.i)
		copy(last.dst, last.pinned)
		return err
	}
	for len(dst) > 0 {
		r.at = pieceBytes // a piece of its own
		p, i, err := r.piece(len(dst))
		if err != nil {
			return err
		}
		if err := r.drv.Download(p, from); err != nil {
			return err
		}
		if err := r.used(i); err != nil {
			return err
		}
		if err := out(); err != nil {
			return err
		}
		last = &part{p, dst[:len(p)], i}
		from, dst = from+uint64(len(p)), dst[len(p):]
	}
	r.at = pieceBytes
	return out()
}

// close waits for all copies and gives the memory back.
func (r *ring) close() {
	for i := range r.busy {
		_ = r.free(i) // what failed has been said by whoever waited
	}
	if r.mem != nil {
		r.drv.Unpin(r.mem)
		r.mem = nil
	}
}
