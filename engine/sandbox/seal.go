package sandbox

// Seal is what a process of ours leaves itself before it touches what a stranger wrote. Where Spec confines a program
// that is about to start, a Seal confines the one that runs: all its threads, for good. A second Seal may take the files away as well.
//
// It allows what a Go program needs that computes and speaks over the descriptors that it has: memory, which may become
// code; threads; clocks; its own signals; reading and writing. It allows no sockets, no other processes, no signals to
// others, and of files what is named here. Without Read and Write there is no way to open any, and no way back.
type Seal struct {
	Read  []string // files and folders that may still be read
	Write []string // folders in which files may be read, written, made and removed
	Again bool     // there was a Seal before, and this one opens nothing: the filter alone keeps files
}

// Final tells whether nothing can be opened after this seal.
func (s Seal) Final() bool { return s.Again || len(s.Read) == 0 && len(s.Write) == 0 }
