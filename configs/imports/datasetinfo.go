package imports

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/loong"
	"github.com/lfactor/lfactor/configs/source"
)

// infoDir is the folder of LLaMA-Factory's dataset_info.json: as it stands, or below the file's folder or one of those
// above, since its commands start at the top of its own tree. "" is none.
func (r *reading) infoDir(dir string) string {
	for _, at := range []string{"", r.dir, r.dir + "/..", r.dir + "/../..", r.dir + "/../../.."} {
		if _, err := os.Stat(filepath.Join(at, dir, loong.FactoryFile)); err == nil {
			return filepath.Join(at, dir)
		}
	}
	return ""
}

// names takes names of data sets over, one text or a list, with the entries that say how their files are read.
func (r *reading) names(key, ours string, v any) {
	names := strings.FieldsFunc(strings.Trim(fmt.Sprint(v), "[]"), func(c rune) bool { return c == ',' || c == ' ' })
	dir := "data"
	if d := r.all["dataset_dir"]; d != nil {
		dir = fmt.Sprint(d)
	}
	var paths []any
	at := r.infoDir(dir)
	file := filepath.Join(at, loong.FactoryFile)
	if at == "" {
		for _, name := range names {
			paths = append(paths, dir+"/"+name+".json*")
		}
		r.set(key, ours, paths)
		r.differ(key, strings.Join(names, ","), "are names of "+dir+"/dataset_info.json, which is not here; "+ours+
			" wants their files, and tells alpaca, sharegpt and OpenAI apart by itself")
		return
	}
	all, err := loong.SFTFormats(file)
	for _, name := range names {
		f := all[name]
		if f.From == nil && err == nil {
			err = &configs.Error{File: file, Key: name, Why: "is no entry of it with a source",
				Try: source.Nearest(name, source.SortedKeys(all))}
		}
		if r.err = cmp.Or(r.err, err); r.err != nil {
			return
		}
		var path any = r.lies(key, at, f)
		if on(r.all["eval_on_each_dataset"]) && ours == "data.valid" {
			path = map[string]any{"path": path, "name": name}
		}
		paths = append(paths, path)
		r.factory(key, file, f)
	}
	if r.set(key, ours, paths); r.all["stage"] != "pt" {
		r.set(key, map[string]string{"data.paths": "data.dataset", "data.valid": "data.valid_dataset"}[ours], names)
		r.set("dataset_dir", "data.dataset_config", file)
	}
}

// lies is where the data of an entry lie; what is not on this host's disks is listed.
func (r *reading) lies(key, dir string, f loong.SFTFormat) string {
	has := func(k string) bool { _, ok := f.From[k]; return ok }
	from := loong.FactorySources[slices.IndexFunc(loong.FactorySources, has)]
	where, key := f.From[from], key+"."+f.Name
	switch path := filepath.Join(dir, where); from {
	case "file_name":
		if _, err := os.Stat(path); err != nil {
			r.differ(key, where, "is not there: bring the file")
		}
		if ext := filepath.Ext(where); ext == ".csv" || ext == ".txt" && r.all["stage"] != "pt" {
			r.differ(key, where, "conversations are read of JSON, Parquet and Arrow: write it as one of these")
		}
		return path
	case "cloud_file_name":
		return strings.Replace(where, "gcs://", "gs://", 1)
	case "script_url":
		r.differ(key, where, "is code in Python, which does not run here: write its rows into "+path)
		return path
	}
	path := filepath.Join(dir, filepath.Base(where))
	r.differ(key, where, "is a data set of a hub ("+from+"): bring its files into "+path)
	return path
}

// entryKeys are keys of an entry beside its source, columns and tags, with what stands for each here.
var entryKeys = map[string]string{"split": "is a part of a set of the hub: give its files",
	"subset": "is a part of a set of the hub: give its files", "folder": "is a part of a set of the hub: give its files",
	"num_samples": "all rows are read: there so many are drawn; give fewer files, or a weight in data.paths"}

// factory lists what of an entry is not as there, and sets what follows from it.
func (r *reading) factory(key, file string, f loong.SFTFormat) {
	full, c, stage := key+"."+f.Name, f.Columns, cmp.Or(fmt.Sprint(r.all["stage"]), "sft")
	for _, k := range slices.Sorted(maps.Keys(f.From)) {
		v := f.From[k]
		if usual := v == "" || v == "null" || k == "split" && v == "train"; !usual && k != "ranking" &&
			!slices.Contains(loong.FactorySources, k) {
			r.differ(full+"."+k, v, cmp.Or(entryKeys[k], "is no key of an entry: LLaMA-Factory does not read it either"))
		}
	}
	refuse := func(key, why string) {
		r.err = cmp.Or(r.err, error(&configs.Error{File: file, Key: f.Name + key, Why: why,
			Try: "name another data set, or another stage"}))
	}
	pairs, media := stage == "dpo" || stage == "rm", c["images"]+c["videos"]
	switch {
	case pairs != strings.EqualFold(f.From["ranking"], "true"):
		refuse(".ranking", fmt.Sprintf("is %q, and stage %s does not learn from it", f.From["ranking"], stage))
	case stage == "pt":
		if r.set(key, "data.text_key", c["prompt"]); c["query"] != "" || f.Format != "alpaca" {
			r.differ(full, stage, "texts of one column are learnt here, "+c["prompt"]+": there more is joined with it")
		}
		return
	case (f.Holds() == "judged") != (stage == "kto"):
		refuse(".columns.kto_tag", "tells judged answers, which stage kto learns from, and no other")
	case media != "" && !pairs && stage != "kto" && f.Format != "alpaca":
		r.set(key, "data.kind", "media")
		media = ""
	}
	if media+c["audios"] != "" {
		r.differ(full+".columns", media+c["audios"], "is not read: sounds, or pictures beside alpaca or pairs")
	}
	if f.Format == "openai" {
		r.differ(full+".formatting", f.Format, "\"detailed thinking off\" is not added to the system's message here")
	}
}
