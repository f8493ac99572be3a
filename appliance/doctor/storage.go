package doctor

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// littleSpace is less than a large model file takes, in bytes.
const littleSpace = 20e9

// storage looks at the model files and the room for more.
func (e *exam) storage() {
	if e.Models == "" {
		e.add("models", Miss, "the cache's folder is not known", "set XDG_CACHE_HOME or HOME")
		return
	}
	count, bytes := models(e.Models)
	if count == 0 {
		e.add("models", Warn, "none in "+e.Models, "1bit model pull qwen2.5-coder-0.5b (or give any file with -m)")
	} else {
		e.add("models", OK, fmt.Sprintf("%d in %s, %.1f GB", count, e.Models, float64(bytes)/1e9), "")
	}
	free, err := e.Space(e.Models)
	switch {
	case err != nil:
		e.add("disk", Warn, "free space cannot be told: "+err.Error(), "see that "+e.Models+" can be written")
	case float64(free) < littleSpace:
		e.add("disk", Warn, fmt.Sprintf("%.1f GB free for models", float64(free)/1e9), "free some space, or let XDG_CACHE_HOME name a larger drive")
	default:
		e.add("disk", OK, fmt.Sprintf("%.0f GB free for models", float64(free)/1e9), "")
	}
}

// models counts the model files below a folder and their bytes. What cannot be read holds none.
func models(dir string) (count int, bytes int64) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(d.Name(), ".gguf") {
			if info, err := d.Info(); err == nil {
				count, bytes = count+1, bytes+info.Size()
			}
		}
		return nil
	})
	return count, bytes
}
