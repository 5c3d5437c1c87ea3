-- Cycles through prepared requests (a file of paths, a file of bodies, one on each line) and reports as JSON.

local prepared, place = {}, 0

local function lines_of(name)
  local found = {}
  for line in io.lines(name) do found[#found + 1] = line end
  return found
end

function init(args)
  local paths, bodies = lines_of(args[1]), lines_of(args[2])
  for i = 1, math.max(#paths, #bodies) do
    local body = bodies[(i - 1) % math.max(#bodies, 1) + 1]
    prepared[i] = wrk.format(body and "POST" or "GET", paths[(i - 1) % #paths + 1], nil, body)
  end
end

function request()
  place = place % #prepared + 1
  return prepared[place]
end

function done(summary, latency, requests)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  io.write(string.format('{"num_requests": %d, "num_errors": %d, "seconds": %.6f, "p99_ms": %.4f}\n',
    summary.requests, failed, summary.duration / 1e6, latency:percentile(99) / 1000))
end
