package record

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

var _ = RegisterSink(SinkKind{Name: "wandb",
	Source: "wandb 0.31: sdk/internal/datastore.py, proto/wandb_internal.proto",
	Open:   func(o SinkOptions) (Sink, error) { return newWandb(o) }})

// wandb writes a run as Weights & Biases does offline, for `wandb sync`: a directory with a log of records.
// The log has blocks of 32 KiB as LevelDB's (checksum, length and kind before each piece), behind a header of its own.
// A run that is resumed has another log under the same id, which its server joins.
type wandb struct {
	f      *os.File
	at     int64 // in the file
	num    uint64
	began  time.Time
	now    func() time.Time
	step   int64
	values map[string]float64 // of the step
	last   map[string]float64
	err    error
}

const (
	wandbBlock  = 32 << 10
	wandbHeader = 7 // before a piece, and before the first block
)

// kinds of pieces of a record.
const (
	wandbFull = iota + 1
	wandbFirst
	wandbMiddle
	wandbLast
)

// Fields of messages: Record, then those inside.
const (
	wandbHistory = 2
	wandbSummary = 3
	wandbRun     = 17
	wandbExit    = 18
	wandbHead    = 21
	valueJSON    = 16
)

func newWandb(o SinkOptions) (*wandb, error) {
	began := o.Now()
	dir := filepath.Join(o.Dir, "wandb", "offline-run-"+began.Format("20060102_150405")+"-"+o.ID)
	if err := os.MkdirAll(filepath.Join(dir, "files"), 0o700); err != nil {
		return nil, err
	}
	f, err := os.Create(filepath.Join(dir, "run-"+o.ID+".wandb"))
	if err != nil {
		return nil, err
	}
	w := &wandb{f: f, began: began, now: o.Now, values: map[string]float64{}, last: map[string]float64{}}
	w.write(append([]byte(":W&B"), 0xe1, 0xbe, 0))
	version := text(text(nil, 1, "lfactor"), 2, "0.70.0")
	w.record(wandbHead, inside(nil, 1, version))
	var config []byte
	for _, key := range slices.Sorted(maps.Keys(o.Config)) {
		config = inside(config, 1, text(text(nil, 1, key), valueJSON, quoted(o.Config[key])))
	}
	run := text(text(nil, 1, o.ID), 3, o.Project)
	run = text(inside(run, 4, config), 8, o.Name)
	run = varint(run, 14, uint64(o.First))
	w.record(wandbRun, inside(run, 17, varint(varint(nil, 1, uint64(began.Unix())), 2, uint64(began.Nanosecond()))))
	return w, w.err
}

// text, varint and inside append a field of a message.
func text(b []byte, field protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

func varint(b []byte, field protowire.Number, n uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), n)
}

func inside(b []byte, field protowire.Number, message []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), message)
}

// quoted is a text as JSON.
func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("record: a text is no JSON: %v", err))
	}
	return string(b)
}

// record appends a message that is one field of Record.
func (w *wandb) record(field protowire.Number, message []byte) {
	w.num++
	data := inside(varint(nil, 1, w.num), field, message)
	for first := true; first || len(data) > 0; first = false {
		room := wandbBlock - int(w.at%wandbBlock)
		if room < wandbHeader {
			w.write(make([]byte, room))
			room = wandbBlock
		}
		piece := data[:min(len(data), room-wandbHeader)]
		data = data[len(piece):]
		kind := byte(wandbFull)
		switch {
		case first && len(data) > 0:
			kind = wandbFirst
		case !first && len(data) > 0:
			kind = wandbMiddle
		case !first:
			kind = wandbLast
		}
		sum := crc32.Update(crc32.ChecksumIEEE([]byte{kind}), crc32.IEEETable, piece)
		head := binary.LittleEndian.AppendUint32(nil, sum)
		head = append(binary.LittleEndian.AppendUint16(head, uint16(len(piece))), kind)
		w.write(append(head, piece...))
	}
}

// write appends bytes.
func (w *wandb) write(b []byte) {
	n, err := w.f.Write(b)
	w.at += int64(n)
	w.err = errors.Join(w.err, err)
}

// Scalar implements Sink: a step's figures are one record, which the first one of another step ends.
func (w *wandb) Scalar(tag string, step int64, v float64) {
	if step != w.step {
		w.flush()
		w.step = step
	}
	w.values[tag] = v
}

// flush writes the figures of a step, and what they are so far.
func (w *wandb) flush() {
	if len(w.values) == 0 || w.err != nil {
		return
	}
	maps.Copy(w.last, w.values)
	now := w.now()
	own := map[string]float64{"_step": float64(w.step), "_runtime": now.Sub(w.began).Seconds(),
		"_timestamp": float64(now.UnixNano()) / 1e9}
	items := func(all ...map[string]float64) (out []byte) {
		for _, m := range all {
			for _, key := range slices.Sorted(maps.Keys(m)) {
				out = inside(out, 1, text(text(nil, 2, key), valueJSON, figure(m[key])))
			}
		}
		return out
	}
	w.record(wandbHistory, inside(items(w.values, own), 2, varint(nil, 1, uint64(w.step))))
	w.record(wandbSummary, items(w.last, own))
	clear(w.values)
}

// figure is a number as JSON; those that JSON has not are as wandb writes them.
func figure(v float64) string {
	switch {
	case v != v:
		return "NaN"
	case math.IsInf(v, 1):
		return "Infinity"
	case math.IsInf(v, -1):
		return "-Infinity"
	}
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("record: a number is no JSON: %v", err))
	}
	return string(b)
}

// Close implements Sink.
func (w *wandb) Close(whole bool) error {
	w.flush()
	code := uint64(0)
	if !whole {
		code = 1
	}
	exit := varint(varint(nil, 1, code), 2, uint64(w.now().Sub(w.began).Seconds()))
	w.record(wandbExit, exit)
	return errors.Join(w.err, w.f.Close())
}
