package plan

// Ledger accounts the memory of the rows of a program while its actions run: what the frames of microbatches
// hold, and what one row has handed to another and owns until both have let it go. It knows nothing of time:
// whoever has the order of events replays them.
type Ledger struct {
	Now, Peak []int64 // by row, beside what is there all the time
	frames    map[frameOf]int64
	lent      map[Loan]*loan
}

type frameOf struct {
	row int
	a   Action // its forward
}

// Loan names storage that a row has handed over: an activation by the giver's forward, or a cotangent by the
// giver's backward, and a port.
type Loan struct {
	Of   Action
	Port int
	Row  int // of the giver
}

type loan struct {
	row     int
	bytes   int64
	holders int
}

// NewLedger is for programs of so many rows.
func NewLedger(rows int) *Ledger {
	return &Ledger{Now: make([]int64, rows), Peak: make([]int64, rows), frames: map[frameOf]int64{},
		lent: map[Loan]*loan{}}
}

func frame(row int, a Action) frameOf { a.Kind = F; return frameOf{row, a} }

// Begin says that a row begins an action whose frame will hold peak bytes at its worst, and gives what the
// row holds then in all.
func (l *Ledger) Begin(row int, a Action, peak int64) int64 {
	most := l.Now[row] - l.frames[frame(row, a)] + peak
	l.Peak[row] = max(l.Peak[row], most)
	return most
}

// Held is what the frame of an action holds.
func (l *Ledger) Held(row int, a Action) int64 { return l.frames[frame(row, a)] }

// Reach says that a row holds for a moment so many bytes more than now, and gives what it holds then in all.
func (l *Ledger) Reach(row int, more int64) int64 {
	most := l.Now[row] + more
	l.Peak[row] = max(l.Peak[row], most)
	return most
}

// Keep says that a row holds bytes more from now on, which an action that has begun counts already.
func (l *Ledger) Keep(row int, bytes int64) { l.Now[row] += bytes }

// End says that a row has ended an action whose frame holds after bytes then.
func (l *Ledger) End(row int, a Action, after int64) {
	k := frame(row, a)
	l.Now[row] += after - l.frames[k]
	if l.frames[k] = after; after == 0 {
		delete(l.frames, k)
	}
}

// Lend says that a row hands storage over, which holders, itself among them if it needs it longer, have yet to let go.
func (l *Ledger) Lend(row int, k Loan, bytes int64, holders int) {
	if holders == 0 || bytes == 0 {
		return
	}
	l.lent[k] = &loan{row, bytes, holders}
	l.Now[row] += bytes
	l.Peak[row] = max(l.Peak[row], l.Now[row])
}

// Drop says that a holder lets storage go that was handed over.
func (l *Ledger) Drop(k Loan) {
	x := l.lent[k]
	if x == nil {
		return
	}
	if x.holders--; x.holders == 0 {
		l.Now[x.row] -= x.bytes
		delete(l.lent, k)
	}
}
