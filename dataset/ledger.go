package dataset

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sort"
)

// Ledger records which samples each committed step saw, in a file that only grows: a header, and for each step a record
// of its length, its CRC-32C and its content. A record that a crash cut off is dropped when the file is opened.
//
// Content: step (varint), the position at its start (length varint, JSON), the number of samples (varint),
// and the samples' places as differences (zigzag varints).
//
// A Ledger is for one goroutine.
type Ledger struct {
	file  *os.File
	steps []ledgerEntry // ascending by step
	end   int64         // size of the file
}

type ledgerEntry struct {
	step, offset int64
	size         int // of the content
}

const ledgerMagic = "LFLEDGER1\n"

// ledgerRecordMax bounds one record: a step of four million samples.
const ledgerRecordMax = 1 << 26

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// OpenLedger opens or creates a ledger and drops what a crash left unfinished at its end. A file that is not
// a ledger, or is damaged anywhere but at its end, is an error and is not touched.
func OpenLedger(path string) (*Ledger, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	l := &Ledger{file: f}
	if err := l.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("ledger %s: %w", path, err), f.Close())
	}
	return l, nil
}

// ReadLedger opens a ledger to look at, without a change to the file: also one that a run is writing.
func ReadLedger(path string) (*Ledger, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	l := &Ledger{file: f}
	info, err := f.Stat()
	if err == nil {
		l.steps, l.end, err = scanLedger(io.NewSectionReader(f, 0, info.Size()), info.Size())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("ledger %s: %w", path, err), f.Close())
	}
	return l, nil
}

// load reads the index of the records.
func (l *Ledger) load() error {
	info, err := l.file.Stat()
	if err != nil {
		return err
	}
	if info.Size() < int64(len(ledgerMagic)) {
		return l.begin(info.Size())
	}
	l.steps, l.end, err = scanLedger(io.NewSectionReader(l.file, 0, info.Size()), info.Size())
	if err != nil {
		return err
	}
	return l.file.Truncate(l.end)
}

// begin writes the header of a new ledger, over the start of one if there is that much.
func (l *Ledger) begin(size int64) error {
	have := make([]byte, size)
	if _, err := l.file.ReadAt(have, 0); err != nil && err != io.EOF {
		return err
	}
	if ledgerMagic[:size] != string(have) {
		return errors.New("it is not a ledger")
	}
	_, err := l.file.WriteAt([]byte(ledgerMagic), 0)
	l.end = int64(len(ledgerMagic))
	return err
}

// scanLedger finds the records and where the last whole one ends.
func scanLedger(r io.Reader, size int64) (steps []ledgerEntry, end int64, err error) {
	in := bufio.NewReader(r)
	magic := make([]byte, len(ledgerMagic))
	if _, err := io.ReadFull(in, magic); err != nil || string(magic) != ledgerMagic {
		return nil, 0, errors.New("it is not a ledger")
	}
	end = int64(len(ledgerMagic))
	for {
		var head [8]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return steps, end, onlyEnd(err)
		}
		n := int64(binary.LittleEndian.Uint32(head[:]))
		if n == 0 { // a tail of zeros, which some file systems leave behind
			return steps, end, nil
		}
		if n > ledgerRecordMax || end+8+n > size {
			return steps, end, tornTail(n, size-end)
		}
		body := make([]byte, n)
		if _, err := io.ReadFull(in, body); err != nil {
			return steps, end, onlyEnd(err)
		}
		if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(head[4:]) {
			if end+8+n < size {
				return nil, 0, fmt.Errorf("the record at byte %d is damaged and others follow; restore "+
					"the file or move it away", end)
			}
			return steps, end, nil
		}
		step, _ := binary.Varint(body)
		if len(steps) > 0 && step <= steps[len(steps)-1].step {
			return nil, 0, fmt.Errorf("the record at byte %d is of step %d, behind step %d", end, step,
				steps[len(steps)-1].step)
		}
		steps = append(steps, ledgerEntry{step, end + 8, int(n)})
		end += 8 + n
	}
}

// onlyEnd takes the end of the file for the end of the ledger, whole or torn.
func onlyEnd(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return nil
	}
	return err
}

// tornTail takes a record that runs over the end of the file for one cut off, unless its length is absurd
// and much follows: then the file is damaged.
func tornTail(n, left int64) error {
	if n > ledgerRecordMax && left > ledgerRecordMax {
		return fmt.Errorf("a record of %d bytes is over the limit of %d", n, ledgerRecordMax)
	}
	return nil
}

// Append records a step: the position it started from and the places of its samples. Steps must ascend;
// after a return to an earlier step, Truncate first.
func (l *Ledger) Append(step int64, start Position, samples []int64) error {
	if n := len(l.steps); n > 0 && step <= l.steps[n-1].step {
		return fmt.Errorf("ledger: step %d comes after step %d; truncate to go back", step, l.steps[n-1].step)
	}
	pos, err := json.Marshal(start)
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	body := binary.AppendVarint(nil, step)
	body = binary.AppendUvarint(body, uint64(len(pos)))
	body = append(body, pos...)
	body = binary.AppendUvarint(body, uint64(len(samples)))
	last := int64(0)
	for _, s := range samples {
		body = binary.AppendVarint(body, s-last)
		last = s
	}
	if len(body) > ledgerRecordMax {
		return fmt.Errorf("ledger: step %d has %d samples, more than a record holds", step, len(samples))
	}
	head := binary.LittleEndian.AppendUint32(nil, uint32(len(body)))
	head = binary.LittleEndian.AppendUint32(head, crc32.Checksum(body, castagnoli))
	if _, err := l.file.WriteAt(append(head, body...), l.end); err != nil {
		return fmt.Errorf("ledger: step %d: %w", step, err)
	}
	l.steps = append(l.steps, ledgerEntry{step, l.end + 8, len(body)})
	l.end += int64(8 + len(body))
	return nil
}

// Truncate drops step and all after it, as when a run goes back to a checkpoint.
func (l *Ledger) Truncate(step int64) error {
	i := l.find(step)
	if i == len(l.steps) {
		return nil
	}
	end := l.steps[i].offset - 8
	if err := l.file.Truncate(end); err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	l.steps, l.end = l.steps[:i], end
	return nil
}

// find returns the index of the first step not before step.
func (l *Ledger) find(step int64) int {
	return sort.Search(len(l.steps), func(i int) bool { return l.steps[i].step >= step })
}

// Last returns the last step recorded, and false for an empty ledger.
func (l *Ledger) Last() (int64, bool) {
	if len(l.steps) == 0 {
		return 0, false
	}
	return l.steps[len(l.steps)-1].step, true
}

// Blame returns the places in the global order of the samples that a step saw, and the position it started
// from. A Loader of the same order, sent to that position, gives the samples again.
func (l *Ledger) Blame(step int64) (samples []int64, start Position, err error) {
	i := l.find(step)
	if i == len(l.steps) || l.steps[i].step != step {
		return nil, start, fmt.Errorf("ledger: step %d is not recorded", step)
	}
	body := make([]byte, l.steps[i].size)
	if _, err := l.file.ReadAt(body, l.steps[i].offset); err != nil {
		return nil, start, fmt.Errorf("ledger: step %d: %w", step, err)
	}
	_, samples, start, err = parseRecord(body)
	if err != nil {
		return nil, start, fmt.Errorf("ledger: step %d: %w", step, err)
	}
	return samples, start, nil
}

// parseRecord reads a record's content.
func parseRecord(body []byte) (step int64, samples []int64, start Position, err error) {
	short := errors.New("the record is shorter than it says")
	step, n := binary.Varint(body)
	if n <= 0 {
		return 0, nil, start, short
	}
	body = body[n:]
	size, n := binary.Uvarint(body)
	if n <= 0 || size > uint64(len(body)-n) {
		return 0, nil, start, short
	}
	if err := json.Unmarshal(body[n:n+int(size)], &start); err != nil {
		return 0, nil, start, err
	}
	body = body[n+int(size):]
	count, n := binary.Uvarint(body)
	if n <= 0 || count > uint64(len(body)-n) {
		return 0, nil, start, short
	}
	body = body[n:]
	last := int64(0)
	for range count {
		d, n := binary.Varint(body)
		if n <= 0 {
			return 0, nil, start, short
		}
		last += d
		samples = append(samples, last)
		body = body[n:]
	}
	return step, samples, start, nil
}

// Close closes the file.
func (l *Ledger) Close() error { return l.file.Close() }
