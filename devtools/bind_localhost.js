// Loaded into kinesis-mock before its own code (NODE_OPTIONS=--require ...).
"use strict";

const net = require("node:net");

// kinesis-mock listens on every interface and has no setting for it.
const LOOPBACK = "127.0.0.1";
const WILDCARDS = new Set([undefined, null, "", "0.0.0.0", "::", "[::]"]);

const listen = net.Server.prototype.listen;

net.Server.prototype.listen = function (first, ...rest) {
  if (first !== null && typeof first === "object") {
    // listen({port, host}, ...); a pipe, a file descriptor or a handle has no port.
    if (first.port !== undefined && WILDCARDS.has(first.host)) {
      first = { ...first, host: LOOPBACK };
    }
  } else if (first === undefined || typeof first === "function" || !isNaN(Number(first))) {
    // listen(), listen(callback), listen(port, host?, backlog?, callback?)
    if (first === undefined || typeof first === "function") {
      rest.unshift(...(first === undefined ? [] : [first]));
      first = 0;
    }
    const named = rest.length > 0 && (typeof rest[0] === "string" || rest[0] == null);
    if (!named) rest.unshift(LOOPBACK);
    else if (WILDCARDS.has(rest[0])) rest[0] = LOOPBACK;
  }
  return listen.call(this, first, ...rest);
};

// Where LocalStack is killed without a chance to end its children, this one ends itself.
const parent = process.ppid;
setInterval(() => {
  if (process.ppid !== parent) process.exit(1);
}, 500).unref();
