// Moving and forgetting the names of a stream's consumers.

import { ask } from "../ask.js";
import { ApiError, path, put, remove } from "../api.js";
import { number } from "../../common/format.js";

export function moveReader(stream, row, done) {
  ask({
    title: `Rewind reader '${row.name}'`,
    says: `The next consumer under this name begins at the offset below; the stream has ${number(stream.first_offset)} to ${number(stream.next_offset)}. Its present consumers must end first.`,
    action: "Rewind",
    danger: true,
    fields: [{ name: "offset", title: "Offset", value: "first", required: true,
      hint: "a number (a negative one counts from the end), first, last or next" }],
    run: async ({ offset }) => {
      const isNumber = /^-?\d+$/.test(offset.trim());
      if (!isNumber && !["first", "last", "next"].includes(offset.trim())) {
        throw new ApiError(0, "The offset must be a number, first, last or next.");
      }
      const where = path`streams/${stream.vhost}/${stream.name}/consumers/${row.name}`;
      await put(where, { offset: isNumber ? Number(offset) : offset.trim() });
      done();
      return `Reader '${row.name}' begins at ${offset}.`;
    },
  });
}

export function forgetReader(stream, row, done) {
  ask({
    title: `Forget reader '${row.name}'`,
    says: "Its offset is forgotten: the next consumer under this name begins where its arguments say.",
    action: "Forget",
    danger: true,
    run: async () => {
      await remove(path`streams/${stream.vhost}/${stream.name}/consumers/${row.name}`);
      done();
      return `Reader '${row.name}' is forgotten.`;
    },
  });
}
