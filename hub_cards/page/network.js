// A checkpoint's weights, and what one layer makes of a neighbourhood: in double precision, from the weights in float32.

// The tensors of a safetensors file: names, shapes and values. Refuses what is cut or no float32.
export function readTensors(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const start = 8 + Number(view.getBigUint64(0, true));
  if (start > bytes.length) throw new Error("model.safetensors is cut off: its header is longer than the file");
  const tensors = {};
  for (const [name, { dtype, shape, data_offsets: [from, to] = [] }] of Object.entries(JSON.parse(new TextDecoder().decode(bytes.subarray(8, start))))) {
    if (name === "__metadata__") continue;
    const count = shape.reduce((product, size) => product * size, 1);
    if (dtype !== "F32") throw new Error(`model.safetensors: ${name} is ${dtype}, and this page computes from F32`);
    if (to - from !== 4 * count || start + to > bytes.length) throw new Error(`model.safetensors is damaged at ${name}`);
    const values = Float64Array.from({ length: count }, (_, place) => view.getFloat32(start + from + 4 * place, true));
    if (!values.every(Number.isFinite)) throw new Error(`model.safetensors is damaged: ${name} holds values that are not finite`);
    tensors[name] = { shape, values };
  }
  return tensors;
}

// Why the page cannot run a model of this configuration; empty if it can.
export function unfit(config) {
  const wanted = config.model_type === "coupled_gpt"
    ? { num_hidden_layers: [1], mlp: ["geglu"], norm: ["rms"], norm_placement: ["pre", "sandwich"], hidden_act: ["gelu_pytorch_tanh"],
        attention_scale: ["sqrt", "zero"], qk_norm: [false], position_encoding: ["pairwise"], windowed: [true], randomized_positions: [false] }
    : { model_type: ["pairwise_bert"], num_hidden_layers: [1], hidden_act: ["gelu"], absolute_positions: ["none"], label_states: [true],
        sink: [true], num_loops: [1], windowed: [true] };
  const other = Object.entries(wanted).find(([name, values]) => !values.includes(config[name]));
  return other ? `this page runs models whose ${other[0]} is ${other[1].join(" or ")}, and its own is ${config[other[0]]}` : "";
}

const SERIES_END = 6; // beyond it erf is 1 in double precision

// The error function, by a series of positive terms (Abramowitz and Stegun, 7.1.6).
export function erf(x) {
  if (Math.abs(x) >= SERIES_END) return Math.sign(x);
  let term = x, sum = x;
  for (let n = 1; Math.abs(term) > 1e-18 * Math.abs(sum); n++) sum += (term *= (2 * x * x) / (2 * n + 1));
  return Math.SQRT2 * SLOPE * Math.exp(-x * x) * sum;
}

const SLOPE = Math.sqrt(2 / Math.PI);

// Values to which the functions of the browser are held before anything is said: argument, exp, tanh, erf; from mpmath, 20 digits.
const TABLE = [
  [-20, 2.0611536224385578e-9, -1, -1],
  [-3.5, 0.030197383422318501, -0.99817789761119871, -0.99999925690162766],
  [-0.75, 0.47236655274101471, -0.63514895238728732, -0.71115563365351513],
  [1e-3, 1.0010005001667083, 0.00099999966666680002, 0.0011283787909692363],
  [0.3, 1.3498588075760031, 0.29131261245159090, 0.32862675945912743],
  [2.25, 9.4877358363585257, 0.97802611473881363, 0.99853728341331885],
  [9, 8103.0839275753840, 0.99999996954004097, 1],
];

// Why the browser's arithmetic is not what PROOF.md assumes; empty if it is.
export function unfitArithmetic() {
  const near = (found, right) => Math.abs(found - right) <= 1e-14 * Math.abs(right);
  const wrong = TABLE.find(([x, exp, tanh, area]) => !(near(Math.exp(x), exp) && near(Math.tanh(x), tanh) && near(erf(x), area)));
  return wrong ? `this browser's exp, tanh or erf is wrong at ${wrong[0]}, so nothing can be said here` : "";
}

// A (rows, columns) matrix times each of some vectors, four at a time, with a bias if there is one.
function multiply({ shape: [rows, columns], values }, vectors, bias) {
  const results = vectors.map(() => new Float64Array(rows));
  if (vectors.length === 1) {
    const [vector] = vectors, [result] = results;
    for (let row = 0, place = 0; row < rows; row++) {
      let first = bias ? bias.values[row] : 0, second = 0;
      if (columns % 2) first += values[place++] * vector[0];
      for (let column = columns % 2; column < columns; column += 2, place += 2) {
        first += values[place] * vector[column];
        second += values[place + 1] * vector[column + 1];
      }
      result[row] = first + second;
    }
    return results;
  }
  for (let group = 0; group < vectors.length; group += 4) {
    const [a, b, c, d] = [0, 1, 2, 3].map((offset) => vectors[group + offset] ?? vectors[group]);
    for (let row = 0, place = 0; row < rows; row++) {
      const start = bias ? bias.values[row] : 0;
      let first = start, second = start, third = start, fourth = start;
      for (let column = 0; column < columns; column++, place++) {
        const weight = values[place];
        first += weight * a[column];
        second += weight * b[column];
        third += weight * c[column];
        fourth += weight * d[column];
      }
      results[group][row] = first;
      if (group + 1 < vectors.length) results[group + 1][row] = second;
      if (group + 2 < vectors.length) results[group + 2][row] = third;
      if (group + 3 < vectors.length) results[group + 3][row] = fourth;
    }
  }
  return results;
}

const plus = (left, right) => left.map((value, place) => value + right[place]);

// One layer over symbols: a symbol is a token or, for encoders, a token and its label of the pass before.
export class Network {
  constructor(config, tensors) {
    const reason = unfit(config);
    if (reason) throw new Error(reason);
    Object.assign(this, { config, tensors, encoder: config.model_type === "pairwise_bert", heads: config.num_attention_heads });
    this.width = config.hidden_size;
    this.headWidth = this.encoder ? this.width / this.heads : config.head_dim;
    this.symbols = new Map(); // by code
    this.rows = []; // by symbol: its state, query, and what each head adds when it looks at it
    this.scores = new Map();
    this.layer = "model.layers.0.";
    this.check();
    const { relation_range: bounds } = config, tables = (this.weight("self_attn.relations.0") ?? this.at("model.position_encoding.relation_bias")).shape;
    this.besides = !this.encoder && bounds ? bounds[1] - bounds[0] + 1 : tables.at(this.encoder ? 0 : 1) - 1; // the relation to `$`, or to the sink
  }

  // This network with noise on its weights: `amount` times the spread of each tensor, the same draw at every amount.
  noisy(amount) {
    let seed = 1;
    const uniform = () => ((seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0) + 1) / 2 ** 32;
    const draw = () => Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform());
    const tensors = Object.fromEntries(Object.entries(this.tensors).map(([name, { shape, values }]) => {
      const spread = Math.sqrt(values.reduce((sum, value) => sum + value * value, 0) / values.length);
      return [name, { shape, values: values.map((value) => value + amount * spread * draw()) }];
    }));
    const other = new Network(this.config, tensors);
    for (const code of this.symbols.keys()) other.symbol(Math.floor(code / 64), (code % 64) - 1);
    return other;
  }

  // Names a tensor that is missing or of another shape.
  check() {
    const { hidden_size: hidden, intermediate_size: units, vocab_size: tokens } = this.config;
    const wide = this.heads * this.headWidth, mlp = this.encoder ? this.layer : `${this.layer}mlp.`;
    const shapes = { "model.embed_tokens.weight": [tokens, hidden], [`${mlp}up_proj.weight`]: [units, hidden], [`${mlp}down_proj.weight`]: [hidden, units],
      [`${this.layer}self_attn.v_proj.weight`]: [wide, hidden], [`${this.layer}self_attn.o_proj.weight`]: [hidden, wide] };
    if (this.reads) for (const name of "qk") shapes[`${this.layer}self_attn.${name}_proj.weight`] = [wide, hidden];
    for (const [name, shape] of Object.entries(shapes)) {
      if (String(this.tensors[name]?.shape) !== String(shape)) throw new Error(`model.safetensors: ${name} is not of shape ${shape.join(" x ")}`);
    }
  }

  get reads() {
    return this.encoder || this.config.attention_scale !== "zero";
  }

  at(name) {
    return this.tensors[name];
  }

  weight(name) {
    return this.tensors[`${this.layer}${name}.weight`];
  }

  bias(name) {
    return this.tensors[`${this.layer}${name}.bias`];
  }

  project(name, vectors) {
    return multiply(this.weight(name), vectors, this.bias(name));
  }

  // RMSNorm, or LayerNorm if the norm has a bias.
  norm(name, vector) {
    const weight = this.at(`${name}.weight`), bias = this.at(`${name}.bias`), size = vector.length;
    let mean = 0, square = 0;
    if (bias) for (const value of vector) mean += value / size;
    for (const value of vector) square += (value - mean) ** 2;
    const scale = 1 / Math.sqrt(square / size + (bias ? this.config.layer_norm_eps : this.config.norm_eps));
    return vector.map((value, place) => (value - mean) * scale * weight.values[place] + (bias ? bias.values[place] : 0));
  }

  // The number of a token, with its label of the pass before if there is one, 0 for none yet.
  symbol(token, label = -1) {
    const code = token * 64 + label + 1;
    if (!this.symbols.has(code)) {
      this.symbols.set(code, this.rows.length);
      this.rows.push(this.makeRow(token, label));
    }
    return this.symbols.get(code);
  }

  makeRow(token, label) {
    if (token < 0) return { query: null, key: null, adds: new Float64Array(this.heads * this.width) }; // the sink: key and value 0
    const { width, layer } = this, rowOf = (table, row) => table.values.subarray(row * width, (row + 1) * width);
    let state = Float64Array.from(rowOf(this.at("model.embed_tokens.weight"), token));
    if (label >= 0) state = state.map((value, place) => value + rowOf(this.at("model.embed_states.weight"), label)[place]);
    if (this.encoder) state = this.norm("model.embedding_norm", state);
    const seen = this.encoder ? state : this.norm(`${layer}attention_norms.input`, state);
    const [value] = this.project("self_attn.v_proj", [seen]), output = this.weight("self_attn.o_proj");
    const adds = new Float64Array(this.heads * width);
    for (let head = 0; head < this.heads; head++) {
      for (let row = 0; row < width; row++) {
        let sum = 0;
        for (let unit = head * this.headWidth; unit < (head + 1) * this.headWidth; unit++) sum += output.values[row * output.shape[1] + unit] * value[unit];
        adds[head * width + row] = sum;
      }
    }
    const [query, key] = ["q", "k"].map((name) => (this.reads ? this.project(`self_attn.${name}_proj`, [seen])[0] : null));
    return { state, query, key, adds };
  }

  // The scores (heads) of a query that looks at a key in a relation.
  score(own, key, relation) {
    const code = (own * 4096 + key) * 64 + relation;
    let found = this.scores.get(code);
    if (found) return found;
    found = new Float64Array(this.heads);
    const asking = this.rows[own].query, offered = this.rows[key].key, scale = this.headWidth ** -0.5;
    const vectors = this.weight("self_attn.relations.0"), biases = this.at("model.position_encoding.relation_bias");
    for (let head = 0; head < this.heads; head++) {
      let sum = 0;
      for (let unit = 0; asking && unit < this.headWidth; unit++) {
        const place = head * this.headWidth + unit;
        const vector = vectors ? vectors.values[(relation * vectors.shape[1] + (vectors.shape[1] > 1 ? head : 0)) * this.headWidth + unit] : 0;
        sum += asking[place] * ((offered ? offered[place] : 0) + vector);
      }
      found[head] = sum * scale + (biases ? biases.values[relation * this.heads + head] : 0);
    }
    this.scores.set(code, found);
    return found;
  }

  // The attention (heads, keys) of a symbol to keys [symbol, relation].
  attention(own, keys) {
    const scores = keys.map(([key, relation]) => this.score(own, key, relation)), weights = new Float64Array(this.heads * keys.length);
    for (let head = 0; head < this.heads; head++) {
      let highest = -Infinity, sum = 0;
      for (const score of scores) highest = Math.max(highest, score[head]);
      for (let place = 0; place < keys.length; place++) sum += weights[head * keys.length + place] = Math.exp(scores[place][head] - highest);
      for (let place = 0; place < keys.length; place++) weights[head * keys.length + place] /= sum;
    }
    return weights;
  }

  // What all heads add to a symbol that sees these keys.
  attended(own, keys) {
    const { width } = this, weights = this.attention(own, keys), output = new Float64Array(width);
    for (let head = 0; head < this.heads; head++) {
      for (let place = 0; place < keys.length; place++) {
        const share = weights[head * keys.length + place], adds = this.rows[keys[place][0]].adds, from = head * width;
        for (let unit = 0; unit < width; unit++) output[unit] += share * adds[from + unit];
      }
    }
    const bias = this.bias("self_attn.o_proj");
    return bias ? plus(output, bias.values) : output;
  }

  // The logits in each of some neighbourhoods { own, keys }.
  logits(cases) {
    const { width, layer, encoder } = this, { norm_placement: placement } = this.config;
    const before = cases.map(({ own }) => this.rows[own].state), attended = cases.map(({ own, keys }) => this.attended(own, keys));
    if (encoder) {
      const states = attended.map((added, place) => this.norm(`${layer}attention_norm`, plus(before[place], added)));
      const hidden = this.project("up_proj", states).map((units) => units.map((x) => 0.5 * x * (1 + erf(x * Math.SQRT1_2))));
      const last = this.project("down_proj", hidden).map((added, place) => this.norm(`${layer}mlp_norm`, plus(states[place], added)));
      return multiply(this.at("classifier.weight"), last, this.at("classifier.bias"));
    }
    const outer = (name, vector) => (placement === "sandwich" ? this.norm(`${layer}${name}_norms.output`, vector) : vector);
    const states = attended.map((added, place) => plus(before[place], outer("attention", added)));
    const read = states.map((state) => this.norm(`${layer}mlp_norms.input`, state)), gates = this.project("mlp.gate_proj", read);
    const hidden = this.project("mlp.up_proj", read).map((units, place) => units.map((x, unit) => 0.5 * x * (1 + Math.tanh(SLOPE * (x + 0.044715 * x * x * x))) * gates[place][unit]));
    const last = this.project("mlp.down_proj", hidden).map((added, place) => this.norm("model.norm", plus(states[place], outer("mlp", added))));
    if (!this.config.tie_word_embeddings) return multiply(this.at("lm_head.weight"), last);
    return multiply(this.at("model.embed_tokens.weight"), last.map((state) => state.map((value) => value * width ** -0.5)));
  }
}
