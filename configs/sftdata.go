package configs

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/lfactor/lfactor/configs/loong"
	"github.com/lfactor/lfactor/configs/source"
)

// sftData finds the entries that data.dataset names, for each path.
func (l *loader) sftData() {
	d := &l.c.Run.Data
	if d.Config == "" && len(d.Dataset) == 0 && len(d.ValidSet) == 0 {
		return
	}
	auto := d.Kind == "auto"
	if auto {
		if d.Kind = "chat"; !l.c.Model.Vision.None() {
			d.Kind = "media"
		}
	}
	holds, ok := map[string]string{"chat": "", "media": "", "preference": "preference",
		"pairs": "preference", "kto": "judged", "judged": "judged"}[d.Kind]
	if !ok {
		l.fault("data.kind", fmt.Sprintf("%s, but data.dataset and data.dataset_config are about "+
			"conversations", d.Kind), "set it to chat, or to media for images")
		return
	}
	if d.Messages != "auto" || d.MessageKey != "" {
		l.fault("data.messages",
			"and data.message_key exclude data.dataset and data.dataset_config, which say the same", "remove them")
	}
	file := d.Config
	all, err := SFTFormats(file)
	if err != nil && filepath.Base(file) == loong.SFTFile && len(l.c.given["data.dataset_config"]) > 0 &&
		l.c.Origin("data.dataset_config").Layer == source.LayerFlag {
		l.c.Notices = append(l.c.Notices, fmt.Sprintf("%v: the entries that LoongForge comes with are taken", err))
		all, err = loong.SFTKnown, nil
	}
	if err != nil {
		l.errs = append(l.errs, err)
		return
	}
	l.c.SFT = l.sftOf("data.dataset", d.Dataset, d.Paths, all)
	l.c.SFTValid = l.sftOf("data.valid_dataset", d.ValidSet, d.Valid, all)
	if len(d.ValidSet) == 0 && len(l.c.SFT) > 0 && len(d.Valid) > 0 {
		l.c.SFTValid = slices.Repeat(l.c.SFT[:1], len(d.Valid))
	}
	for _, f := range slices.Concat(l.c.SFT, l.c.SFTValid) {
		if auto && f.Holds() != "" {
			holds, d.Kind, auto = f.Holds(), f.Holds(), false
		}
		if f.Holds() != holds {
			l.fault("data.dataset", fmt.Sprintf("the entry %s holds data of the kind %s, and data.kind is %s",
				source.Quoted(f.Name),
				cmp.Or(f.Holds(), "chat"), d.Kind), "name entries of one kind")
			return
		}
	}
}

// sftOf gives each path its entry: one each, or one for all.
func (l *loader) sftOf(key string, names []string, paths []WeightPath, all map[string]SFTFormat) (out []SFTFormat) {
	d := &l.c.Run.Data
	if len(names) == 0 {
		names = []string{map[string]string{"chat": "default", "media": "multimodal"}[d.Kind]}
		if _, ok := all[names[0]]; !ok && d.Kind == "media" {
			return nil // as LoongForge: the usual names then
		}
	}
	if len(names) != 1 && len(names) != len(paths) {
		l.fault(key, fmt.Sprintf("%d entries for %d paths", len(names), len(paths)),
			"name one for each path, or one for all")
		return nil
	}
	for i := range paths {
		name := names[0]
		if len(names) > 1 {
			name = names[i]
		}
		f, ok := all[name]
		if !ok {
			l.fault(key, fmt.Sprintf("there is no entry %s", source.Quoted(name)),
				source.Nearest(name, source.SortedKeys(all)))
			return nil
		}
		out = append(out, f)
	}
	return out
}
