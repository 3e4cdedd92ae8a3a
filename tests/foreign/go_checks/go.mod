module dragoman.test/checks

go 1.24
