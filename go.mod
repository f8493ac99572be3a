module onebit

go 1.26
