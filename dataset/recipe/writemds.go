package recipe

import (
	"fmt"
	"io"

	"github.com/lfactor/lfactor/dataset/curate"
	"github.com/lfactor/lfactor/dataset/format"
)

// mds: Mosaic's streaming shards with the columns text and metadata.
var _ = RegisterWriter(Writer{Name: "mds",
	Doc:    "Mosaic's streaming shards with the columns text and metadata (JSON), and their index.json",
	Ext:    func(string) string { return ".mds" },
	Create: func(w io.Writer, _ string, _ *Table) (DocWriter, error) { return &mdsWriter{out: w}, nil },
	Finish: format.WriteMDSIndex})

// mdsBytesMax bounds a shard, which is made in memory.
const mdsBytesMax = 1 << 31

type mdsWriter struct {
	out io.Writer
	w   format.MDSWriter
}

func (m *mdsWriter) Add(d *curate.Doc) error {
	m.w.Add(d.Text, string(appendRecord(nil, d, "")))
	if m.w.Len() > mdsBytesMax {
		return fmt.Errorf("a shard of MDS is over %d bytes; set documents of the output to fewer", int64(mdsBytesMax))
	}
	return nil
}

func (m *mdsWriter) Close() error {
	_, err := m.out.Write(m.w.Bytes())
	return err
}
