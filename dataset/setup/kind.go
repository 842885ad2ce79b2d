package setup

import (
	"errors"
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/store"
	"github.com/lfactor/lfactor/topology/machine"
)

// kindNames are what data.kind calls kinds of several formats; the others are called by their format.
var kindNames = map[dataset.Kind]string{
	dataset.KindChat:  "chat",
	dataset.KindParts: "media",
}

// DataKind says what a run's data holds: as data.kind says, or, where that is auto, as the files tell.
// Conversations in records are samples with media (dataset.KindParts) for a model with a vision encoder.
// Texts and ids together are texts. Files of kinds that no run reads together are an error.
func DataKind(c *configs.Config) (dataset.Kind, error) {
	d := c.Run.Data
	if d.Kind != "auto" {
		for k, name := range kindNames {
			if name == d.Kind {
				return k, nil
			}
		}
		for _, f := range dataset.Formats() {
			if f.Name == formatName(d.Kind) {
				return f.Kind, nil
			}
		}
		return "", c.Fault("data.kind", fmt.Sprintf("no data format is named %q", d.Kind), "")
	}
	var found dataset.Kind
	first := ""
	paths, err := DataPaths(c)
	if err != nil {
		return "", c.Fault("data.paths", err.Error(), "")
	}
	for _, p := range append(paths, d.Valid...) {
		f, err := dataset.FormatOf(p.Path, dataset.Options{})
		if err != nil {
			return "", c.Fault("data.paths", err.Error(), "set data.kind to what the files hold")
		}
		kind := f.Kind
		if kind.Form() == dataset.InMessages && !c.Model.Vision.None() {
			kind = dataset.KindParts //lfvet:kind a model that sees reads conversations and their images as samples
		}
		both, ok := found.With(kind)
		if !ok {
			for _, path := range []string{first, p.Path} {
				if why := dataset.Hollow(path); why != "" {
					return "", c.Fault(keyOf(&d, path), why, "name data, or leave it out")
				}
			}
			return "", c.Fault("data.paths", fmt.Sprintf("%s holds %s and %s holds %s; a run reads one kind",
				store.Redact(first), found, store.Redact(p.Path), kind), "name data of one kind")
		}
		if both != found {
			found, first = both, p.Path
		}
	}
	return found, nil
}

// keyOf is the key that a path of a run stands at.
func keyOf(d *configs.Data, path string) string {
	if slices.ContainsFunc(d.Valid, func(p configs.WeightPath) bool { return p.Path == path }) {
		return "data.valid"
	}
	return "data.paths"
}

// DataPaths are the paths of a run's training data: of data that grows those of the first generation, which
// must be there.
func DataPaths(c *configs.Config) ([]configs.WeightPath, error) {
	d := c.Run.Data
	if !d.Follow || len(d.Paths) != 1 {
		return slices.Clone(d.Paths), nil
	}
	list, _, err := dataset.ReadManifest(d.Paths[0].Path)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 || list[0].End {
		return nil, fmt.Errorf("%s has no generation yet; start `lfactor data ingest --follow`, and then the run",
			store.Redact(d.Paths[0].Path))
	}
	var out []configs.WeightPath
	for _, s := range list[0].Shards {
		out = append(out, configs.WeightPath{Path: dataset.ShardPath(d.Paths[0].Path, s), Weight: 1})
	}
	return out, nil
}

// OpenedAs is the format in which a path of a run is opened, "" where the files tell: conversations may have
// a shape of their own, and media lie in shards, folders of them, or jobs.
func OpenedAs(d *configs.Data) string {
	switch {
	case d.Kind == "auto", d.Kind == "media", d.Kind == "chat" && d.Messages == "auto":
		return ""
	case d.Kind == "chat":
		return d.Messages
	}
	return formatName(d.Kind)
}

// formatName is a format by the name that data.kind gives it.
func formatName(kind string) string {
	switch kind {
	case "pairs":
		return "preference"
	case "kto":
		return "judged"
	}
	return kind
}

// DataFault is the fault of a path of key that cannot be opened.
func DataFault(c *configs.Config, key string, err error) error {
	var clash *dataset.ClashError
	if !errors.As(err, &clash) {
		return c.Fault(key, err.Error(), "")
	}
	at, is := "data.kind", clash.Have.Name
	if c.Run.Data.Kind == "chat" {
		at = "data.messages"
	}
	if name, ok := kindNames[clash.Have.Kind]; ok {
		is = name
	}
	return c.Fault(at, err.Error(), fmt.Sprintf("leave data.kind out, or set it to %s; what is to be read as text "+
		"byte by byte needs a name in .txt", is))
}

// kindHere checks data.kind against the files of this host: stores are not asked.
func kindHere(c *configs.Config, at configs.At) {
	format := OpenedAs(&c.Run.Data)
	if c.Run.Data.Follow { // its shards are looked at when they are read
		if c.Run.Train.Epochs > 0 {
			at("train.epochs", "data that grows is learnt once, generation by generation", "set train.steps instead")
		}
		return
	}
	for _, p := range append(append([]configs.WeightPath{}, c.Run.Data.Paths...), c.Run.Data.Valid...) {
		if store.Scheme(p.Path) != "" || format == "" {
			continue
		}
		var clash *dataset.ClashError
		if _, err := dataset.FormatOf(p.Path, dataset.Options{Format: format}); errors.As(err, &clash) {
			report(DataFault(c, "data.paths", err), at)
			return
		}
	}
}

// hasLocal says whether all paths of a run are on this host's disks, and there.
func hasLocal(c *configs.Config) bool {
	for _, p := range append(append([]configs.WeightPath{}, c.Run.Data.Paths...), c.Run.Data.Valid...) {
		files, err := dataset.ExpandPaths(p.Path)
		if store.Scheme(p.Path) != "" || err != nil {
			return false
		}
		if !machine.Exists(files[0]) && !machine.Exists(files[0]+".bin") {
			return false
		}
	}
	return true
}
