package catalog

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// preferred are the quantisations that are taken when nobody names one, the first that is there.
var preferred = []string{"Q4_K_M", "UD-Q4_K_XL", "Q4_K_XL", "Q4_0", "Q4_1", "Q5_K_M", "Q6_K", "Q8_0", "MXFP4", "BF16", "F16", "F32"}

// companions begin the names of files that belong to a model but are none.
var companions = []string{"mmproj", "mtp-", "imatrix", "dflash", "draft-"}

// companion reports whether a file goes beside a model.
func companion(file string) bool {
	base := strings.ToLower(path.Base(file))
	return slices.ContainsFunc(companions, func(c string) bool { return strings.HasPrefix(base, c) || strings.Contains(base, "."+c) })
}

// Choose picks files of a repository: those that a pattern matches, as a path or by their last part; or else the one
// model of a quantisation, all shards of it. The file to load is the first.
func Choose(files []RepoFile, quant, include string) ([]RepoFile, error) {
	if include != "" {
		return matching(files, include)
	}
	models := map[string][]RepoFile{}
	var names []string
	for _, f := range files {
		if !strings.HasSuffix(f.Path, ".gguf") || companion(f.Path) {
			continue
		}
		name := strings.TrimSuffix(f.Path, ".gguf")
		if m := shardName.FindStringSubmatch(f.Path); m != nil {
			name = m[1]
		}
		if models[name] == nil {
			names = append(names, name)
		}
		models[name] = append(models[name], f)
	}
	if len(names) == 0 {
		return nil, errNoFile
	}
	name, err := pick(names, quant)
	if err != nil {
		return nil, err
	}
	return whole(models[name])
}

// pick chooses one of several models by its quantisation.
func pick(names []string, quant string) (string, error) {
	wanted := preferred
	if quant != "" {
		wanted = []string{quant}
	} else if len(names) == 1 {
		return names[0], nil
	}
	for _, q := range wanted {
		var hits []string
		for _, n := range names {
			if ends(path.Base(n), q) {
				hits = append(hits, n)
			}
		}
		if len(hits) == 1 {
			return hits[0], nil
		}
		if len(hits) > 1 {
			return "", fmt.Errorf("%s is the name of several of its models, give --include with one of: %s", q, list(hits))
		}
	}
	if quant != "" {
		return "", fmt.Errorf("none of its models is of %s; it has: %s", quant, list(names))
	}
	return "", fmt.Errorf("which of its models? Name a quantisation, as in owner/name:Q4_K_M, or give --include; it has: %s", list(names))
}

// ends reports whether a name ends with a quantisation, as a word of its own.
func ends(name, quant string) bool {
	name, quant = strings.ToLower(name), strings.ToLower(quant)
	before, ok := strings.CutSuffix(name, quant)
	return ok && (before == "" || strings.ContainsAny(before[len(before)-1:], "-."))
}

// list writes names for people, not too many.
func list(names []string) string {
	const most = 20
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

// matching returns the files that a pattern matches, with what is to be loaded first.
func matching(files []RepoFile, include string) ([]RepoFile, error) {
	if _, err := path.Match(include, ""); err != nil {
		return nil, fmt.Errorf("--include %q is no pattern: %w", include, err)
	}
	var out []RepoFile
	for _, f := range files {
		whole, _ := path.Match(include, f.Path)
		last, _ := path.Match(include, path.Base(f.Path))
		if whole || last {
			out = append(out, f)
		}
	}
	if len(out) == 0 {
		var all []string
		for _, f := range files {
			all = append(all, f.Path)
		}
		return nil, fmt.Errorf("--include %q matches none of its files: %s", include, list(all))
	}
	weight := func(f RepoFile) int {
		switch {
		case !strings.HasSuffix(f.Path, ".gguf"):
			return 2
		case companion(f.Path):
			return 1
		}
		return 0
	}
	slices.SortStableFunc(out, func(a, b RepoFile) int { return weight(a) - weight(b) })
	return out, nil
}

// whole checks that all shards of a model are there.
func whole(shards []RepoFile) ([]RepoFile, error) {
	m := shardName.FindStringSubmatch(shards[0].Path)
	if m == nil {
		return shards, nil
	}
	count, err := strconv.Atoi(m[3])
	if err != nil || count != len(shards) {
		return nil, fmt.Errorf("%s has %d of %d parts", m[1], len(shards), count)
	}
	for i, s := range shards {
		if want := fmt.Sprintf("%s-%05d-of-%05d.gguf", m[1], i+1, count); s.Path != want {
			return nil, fmt.Errorf("the part %s is missing", want)
		}
	}
	return shards, nil
}

// parts returns the names of all shards of the model that one shard's name belongs to, or that name alone.
func parts(file string) ([]string, error) {
	m := shardName.FindStringSubmatch(file)
	if m == nil {
		return []string{file}, nil
	}
	count, err := strconv.Atoi(m[3])
	if err != nil || count < 1 || count > 1000 {
		return nil, fmt.Errorf("%s is one of %s parts", file, m[3])
	}
	out := make([]string, count)
	for i := range out {
		out[i] = fmt.Sprintf("%s-%05d-of-%05d.gguf", m[1], i+1, count)
	}
	return out, nil
}
