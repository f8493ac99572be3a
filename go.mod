module onebit

go 1.26.0

require golang.org/x/sys v0.50.0

require github.com/google/go-cmp v0.7.0

require golang.org/x/text v0.44.0

require github.com/ardanlabs/jinja v1.8.0
