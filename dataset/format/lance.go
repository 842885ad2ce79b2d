package format

import (
	"bytes"
	"path/filepath"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/topology/machine"
)

// Lance: folders of fragments and versions. No Go library reads them without its C library, so they are
// refused with the way out.
var _ = dataset.Refuse(func(path string, head []byte) string {
	const wayOut = ", which is not read: write it as Arrow, as with Python's lance.dataset(…).to_table() and " +
		"pyarrow.feather.write_feather, or as Parquet"
	switch {
	case head == nil && machine.Exists(filepath.Join(path, "_versions")) &&
		(HasSuffix(path, ".lance") || machine.Exists(filepath.Join(path, "data"))):
		return "it is a data set of Lance" + wayOut
	case len(head) > 4 && bytes.HasSuffix(head, []byte("LANC")):
		return "it is a file of Lance" + wayOut
	}
	return ""
})
