package record

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// TensorBoard writes scalars as TensorBoard events: TFRecords (length, masked CRC, data, masked CRC) of
// Event messages. Source: tensorflow/core/util/event.proto, tensorflow/core/lib/io/record_writer.h.
type TensorBoard struct{ f *os.File }

// NewTensorBoard begins a file of events in dir for a run that begins with step first.
func NewTensorBoard(dir string, first int64) (*TensorBoard, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.Create(filepath.Join(dir, fmt.Sprintf("events.out.tfevents.%010d.step%d", time.Now().Unix(), first)))
	if err != nil {
		return nil, err
	}
	t := &TensorBoard{f}
	b := protowire.AppendTag(t.event(0), 3, protowire.BytesType) // file_version
	t.record(protowire.AppendString(b, "brain.Event:2"))
	return t, nil
}

// event begins an Event message: wall_time = 1, step = 2.
func (t *TensorBoard) event(step int64) []byte {
	b := protowire.AppendTag(nil, 1, protowire.Fixed64Type)
	b = protowire.AppendFixed64(b, math.Float64bits(float64(time.Now().UnixNano())/1e9))
	b = protowire.AppendTag(b, 2, protowire.VarintType)
	return protowire.AppendVarint(b, uint64(step))
}

// Scalar writes one value: Event.summary = 5, Summary.value = 1, Value.tag = 1, Value.simple_value = 2.
func (t *TensorBoard) Scalar(tag string, step int64, v float64) {
	val := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), tag)
	val = protowire.AppendFixed32(protowire.AppendTag(val, 2, protowire.Fixed32Type), math.Float32bits(float32(v)))
	sum := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), val)
	t.record(protowire.AppendBytes(protowire.AppendTag(t.event(step), 5, protowire.BytesType), sum))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// masked is the checksum of a TFRecord, a CRC-32C that is rotated by 15 bits and shifted by a
// constant, as the format defines it.
func masked(b []byte) uint32 {
	c := crc32.Checksum(b, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}

// record appends one TFRecord: the length and its checksum, then the data and its checksum.
func (t *TensorBoard) record(data []byte) {
	n := binary.LittleEndian.AppendUint64(nil, uint64(len(data)))
	out := binary.LittleEndian.AppendUint32(n, masked(n))
	out = binary.LittleEndian.AppendUint32(append(out, data...), masked(data))
	_, _ = t.f.Write(out) // a full disk must not end training
}

// Close implements Sink.
func (t *TensorBoard) Close(bool) error { return t.f.Close() }
