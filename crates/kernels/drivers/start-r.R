local({f<-file("/proc/self/fd/3","reb",raw=TRUE);n<-as.integer(readLines(f,1));eval(parse(text=rawToChar(readBin(f,"raw",n)),keep.source=FALSE),list2env(list(requests=f),parent=baseenv()))})
